// State of one rank in the verifier's machine.
#pragma once

#include <array>
#include <memory>
#include <set>
#include <vector>

#include "verify/buffer_set.h"
#include "verify/memory.h"
#include "verify/ring_check.h"

namespace hetccl::verify {

/// A message that is posted, and perhaps not complete.
struct Posted {
  uint32_t call = 0;
  lower::Issue issue;
  Clock start;
  std::vector<Value> values{};  ///< of a send with data
};

inline constexpr uint32_t kNone = UINT32_MAX;

/// One direction of a lane.
struct LaneQueue {
  uint32_t call = 0;  ///< the call whose instructions it runs
  lower::Walk walk{};
  Clock clock;      ///< known when the next instruction starts
  Clock completed;  ///< known once the last message is complete
  std::vector<Posted> posted{};
  uint32_t n_completed = 0;
};

/// A lane of one executor, for all its calls.
struct LaneState {
  uint32_t executor = 0;
  int peer = -1;
  size_t at_peer = 0;             ///< index of the lane at the peer
  std::vector<uint32_t> numbers;  ///< by call: its index in the call's Code, or kNone
  LaneQueue sends, recvs, acknowledgements;
  std::unique_ptr<RingCheck> ring{};  ///< for messages sent
};

struct CallState {
  const lower::Code* code = nullptr;  ///< null if this rank does not launch the call
  uint32_t executor = 0;
  ThreadId caller = 0;      ///< the stream on which the caller works before and after the call
  bool own_stream = false;  ///< the Code's user stream is the executor's, not the caller's
  uint32_t n_slices = 0;
  std::vector<uint32_t> lanes;             ///< by lane of the Code: index in the rank's lanes
  std::vector<uint32_t> travels;           ///< by message: number of slices in which it travels
  uint32_t set = kNone;                    ///< rotating buffer set; kNone: buffers of its own
  uint32_t before = kNone;                 ///< the previous call with that set
  std::vector<std::vector<Clock>> syncs;   ///< by sync: the clock at each count
  std::vector<std::vector<Clock>> events;  ///< the same, counting only orders by streams and events
  std::vector<uint32_t> inputs, outputs;   ///< places, by block and slice
  std::vector<uint32_t> scratch, staging;  ///< places, by block or message, and slot
  uint32_t identity = 0;                   ///< the place of the operator's identity
  uint32_t host = 0;                       ///< the place of Memory::Host
  std::vector<RingMessage> ring_places;    ///< by message and slot: the message whose ring place
                                           ///< exec keeps there
  /// Block, slice and cell of each element that it has encoded.
  std::set<std::array<uint32_t, 3>> encoded;
  bool finished = false, retired = false;
  size_t outstanding = 0;      ///< messages that are not complete
  Clock over;                  ///< known once the call is retired
  std::vector<uint32_t> runs;  ///< by stream: its count after its last work for this call
};

/// An instruction on the rank's streams.
struct Enqueued {
  uint32_t call = 0;
  lower::Issue issue;
  enum class Kind : uint8_t { Begin, Fork, Run, Join, End } kind = Kind::Run;
};

struct RankState {
  int rank = 0;
  uint32_t n_executors = 1;
  ModelMemory memory;
  std::vector<BufferSet> sets;   ///< by executor and turn
  std::vector<Clock> clocks;     ///< by stream
  std::vector<Clock> by_events;  ///< the same, counting only orders by streams and events: what
                                 ///< holds after an abort
  std::vector<uint32_t> counts;  ///< number of completions, by thread
  std::vector<LaneState> lanes;
  std::vector<CallState> calls;
  std::vector<Enqueued> queue;  ///< instructions of all streams, as one hardware queue
  size_t next = 0;
  bool arrived = false;  ///< has arrived at the library call at the queue's head
  uint32_t needed = 0;   ///< credit that the reservation at the queue's head waits for
  bool reserved = false;

  [[nodiscard]] const lower::Instruction& code(uint32_t call, uint32_t index) const {
    return calls[call].code->list[index];
  }
  [[nodiscard]] const lower::LaneMessage& message(uint32_t call, uint16_t number) const {
    return calls[call].code->messages[number];
  }
  /// The lane of a message of a call.
  [[nodiscard]] LaneState& lane_of(uint32_t call, uint16_t number) {
    return lanes[calls[call].lanes[message(call, number).lane]];
  }
  /// The stream of that call's caller.
  [[nodiscard]] ThreadId caller_stream(uint32_t call) const {
    return lower::kStreams * n_executors + call;
  }
  /// Each call has a user stream of its own, except messages that use their executor's. All other
  /// streams are the executor's.
  [[nodiscard]] ThreadId stream_thread(lower::QueueId queue_id, uint32_t call) const {
    const bool user = queue_id == lower::stream_queue(lower::QueueKind::User);
    return user && !calls[call].own_stream ? caller_stream(call)
                                           : lower::kStreams * calls[call].executor + queue_id;
  }
  [[nodiscard]] ThreadId lane_thread(size_t lane, lower::QueueKind kind) const {
    return static_cast<ThreadId>(lower::kStreams * n_executors + calls.size() +
                                 lower::lane_queue(lane, kind) - lower::kStreams);
  }
};

}  // namespace hetccl::verify
