// One rank of the verifier's machine.
#pragma once

#include <array>
#include <memory>
#include <set>
#include <vector>

#include "verify/buffer_set.h"
#include "verify/memory.h"
#include "verify/ring_check.h"

namespace hetccl::verify {

/// A message between its post and its completion.
struct Posted {
  uint32_t call = 0;
  lower::Issue issue;
  Clock start;
  std::vector<Value> values{};  ///< of a send with data
};

inline constexpr uint32_t kNone = UINT32_MAX;

/// One direction of a lane.
struct LaneQueue {
  uint32_t call = 0;  ///< of which it runs instructions
  lower::Walk walk{};
  Clock clock;      ///< of what starts next
  Clock completed;  ///< of what completed last
  std::vector<Posted> posted{};
  uint32_t n_completed = 0;
};

/// A lane of one executor, over all its calls.
struct LaneState {
  uint32_t executor = 0;
  int peer = -1;
  size_t at_peer = 0;             ///< this rank's lane there
  std::vector<uint32_t> numbers;  ///< by call: its number in the call's Code, or kNone
  LaneQueue sends, recvs, acknowledgements;
  std::unique_ptr<RingCheck> ring{};  ///< of what is sent
};

struct CallState {
  const lower::Code* code = nullptr;  ///< null where the rank does not launch it
  uint32_t executor = 0;
  ThreadId caller = 0;      ///< the stream on which its caller works before and after it
  bool own_stream = false;  ///< its Code's user stream is its executor's, not the caller's
  uint32_t n_slices = 0;
  std::vector<uint32_t> lanes;             ///< by the Code's lane: the rank's
  std::vector<uint32_t> travels;           ///< by message: the slices in which it travels
  uint32_t set = kNone;                    ///< of the buffers that it works in, unless its own
  uint32_t before = kNone;                 ///< the call that had that set before
  std::vector<std::vector<Clock>> syncs;   ///< by sync: the clock of each count
  std::vector<std::vector<Clock>> events;  ///< the same, as far as streams and events order
  std::vector<uint32_t> inputs, outputs;   ///< places, by block and slice
  std::vector<uint32_t> scratch, staging;  ///< places, by block or message, and slot
  uint32_t identity = 0;                   ///< the place of the operator's identity
  uint32_t host = 0;                       ///< the place of Memory::Host
  std::vector<RingMessage> ring_places;    ///< by message and slot: whose place exec has there
  /// The block, slice and cell of what it has encoded.
  std::set<std::array<uint32_t, 3>> encoded;
  bool finished = false, retired = false;
  size_t outstanding = 0;      ///< messages
  Clock over;                  ///< what is known once it is retired
  std::vector<uint32_t> runs;  ///< by stream thread: its completions when it last runs for it
};

/// An instruction of the rank's streams.
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
  std::vector<Clock> clocks;     ///< by stream thread
  std::vector<Clock> by_events;  ///< the same, as far as streams and events order: after an abort
  std::vector<uint32_t> counts;  ///< completions, by thread
  std::vector<LaneState> lanes;
  std::vector<CallState> calls;
  std::vector<Enqueued> queue;  ///< all streams' instructions as one queue
  size_t next = 0;
  bool arrived = false;  ///< at the library's call where `queue` stands
  uint32_t needed = 0;   ///< credit, where `queue` stands at a reservation that was made
  bool reserved = false;

  [[nodiscard]] const lower::Instruction& code(uint32_t call, uint32_t index) const {
    return calls[call].code->list[index];
  }
  [[nodiscard]] const lower::LaneMessage& message(uint32_t call, uint16_t number) const {
    return calls[call].code->messages[number];
  }
  /// The lane of a call's message.
  [[nodiscard]] LaneState& lane_of(uint32_t call, uint16_t number) {
    return lanes[calls[call].lanes[message(call, number).lane]];
  }
  /// A stream of that call's caller.
  [[nodiscard]] ThreadId caller_stream(uint32_t call) const {
    return lower::kStreams * n_executors + call;
  }
  /// Each call has a user's stream of its own, but for messages that have their executor's; other
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
