// What a communicator's steps did when, as the engine sees it: the matter of HETCCL_TRACE. Made
// only when a trace is wanted; the executor then has one branch less to skip.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "exec/operation.h"

namespace hetccl::exec {

/// A piece of time on one track. Spans of one track follow each other and do not overlap.
struct TraceSpan {
  const char* name = "waiting";  ///< or what the instruction does: "ccl_reduce", "send"
  uint32_t track = 0;
  uint16_t step = 0;
  uint32_t slice = 0;
  uint64_t sequence = 0;
  TimePoint begin{}, end{};
};

/// One operation from its call to its end.
struct TraceOperation {
  uint64_t sequence = 0;
  Signature signature;
  std::optional<Message> message;
  TimePoint launched{}, started{}, completed{};
};

/// Keeps the latest kSpans spans and kOperations operations. By whoever drives, one thread at a
/// time; a copy of it may be read anywhere.
class Tracer {
 public:
  static constexpr size_t kSpans = 65'536;
  static constexpr size_t kOperations = 8'192;
  /// The tracks of the streams of collectives; behind them each peer has its own: what a lane
  /// carries of collectives and of messages, and what streams do for messages.
  static constexpr uint32_t kCclTrack = 0, kWorkTrack = 1, kOutTrack = 2, kInTrack = 3;
  enum class PeerTrack : uint8_t { Collectives, Messages, Streams };
  static constexpr uint32_t peer_track(int peer, PeerTrack which, bool sends) {
    return 4 + 6 * static_cast<uint32_t>(peer) + 2 * static_cast<uint32_t>(which) + (sends ? 0 : 1);
  }

  /// Looks at what the operation has done since the last look. Those of an order in their order.
  void look(Operation& operation, TimePoint now);
  /// A message was handed to the transport, or is done, on a lane's track.
  void post(Operation& operation, lower::Issue issue, TimePoint now);
  void complete(Operation& operation, lower::Issue issue, uint32_t track, TimePoint now);
  /// The operation has ended: what was not seen to end ends now.
  void retire(Operation& operation, TimePoint now);

  [[nodiscard]] const std::deque<TraceSpan>& spans() const { return spans_; }
  [[nodiscard]] const std::deque<TraceOperation>& operations() const { return operations_; }
  /// Spans that had to make room.
  [[nodiscard]] uint64_t forgotten() const { return forgotten_; }
  /// The names of the tracks that have spans.
  [[nodiscard]] std::map<uint32_t, std::string> tracks() const;

 private:
  // What was seen of an operation in flight.
  struct Seen {
    TimePoint started{};
    std::vector<uint32_t> slices;   // of each instruction of the body
    std::vector<TimePoint> posted;  // of each (instruction, slice) of a message
    std::vector<TimePoint> told;    // of each (sync, slice)
  };
  Seen& seen(const Operation& operation);
  void look_at_streams(Seen& seen, Operation& operation, TimePoint now);
  static TimePoint ready_time(const Seen& seen, const Operation& operation, lower::Issue issue);
  void end(Seen& seen, const Operation& operation, lower::Issue issue, uint32_t track,
           TimePoint ready, TimePoint now);
  static void tell(Seen& seen, const Operation& operation, lower::Issue issue, TimePoint now);
  void add(const TraceSpan& span);

  std::unordered_map<const Operation*, Seen> in_flight_;
  std::map<uint32_t, TimePoint> track_ends_;
  std::deque<TraceSpan> spans_;
  std::deque<TraceOperation> operations_;
  uint64_t forgotten_ = 0;
};

/// Who speaks in a trace: one process of the picture.
struct TraceProcess {
  int rank = 0;
  std::string name;  ///< "rank 0 (host a, pid 7)"
};
/// Chrome's trace event format (catapult, "JSON Object Format"), as Perfetto and chrome://tracing
/// open it; times are the wall clock's, so that traces of several ranks fit together.
std::string to_json(const Tracer& tracer, const TraceProcess& process);

}  // namespace hetccl::exec
