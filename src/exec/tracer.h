// Records when a communicator's steps ran, as the engine sees them, for HETCCL_TRACE. Made only if
// a trace is wanted; otherwise it costs the executor one branch.
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

/// A time interval on one track. Spans of a track do not overlap.
struct TraceSpan {
  const char* name = "waiting";  ///< or the instruction's name: "ccl_reduce", "send"
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

/// Keeps the latest kSpans spans and kOperations operations. Used by the driving thread, one at a
/// time; a copy may be read anywhere.
class Tracer {
 public:
  static constexpr size_t kSpans = 65'536;
  static constexpr size_t kOperations = 8'192;
  /// The tracks of the collectives' streams. Behind them each peer has its own: for the lanes of
  /// collectives and of messages, and for the messages' streams.
  static constexpr uint32_t kCclTrack = 0, kWorkTrack = 1, kOutTrack = 2, kInTrack = 3;
  enum class PeerTrack : uint8_t { Collectives, Messages, Streams };
  static constexpr uint32_t peer_track(int peer, PeerTrack which, bool sends) {
    return 4 + 6 * static_cast<uint32_t>(peer) + 2 * static_cast<uint32_t>(which) + (sends ? 0 : 1);
  }

  /// Records what the operation has done since the last look. Call for an order's operations in
  /// order.
  void look(Operation& operation, TimePoint now);
  /// Records that a message was posted to the transport or completed, on its lane's track.
  void post(Operation& operation, lower::Issue issue, TimePoint now);
  void complete(Operation& operation, lower::Issue issue, uint32_t track, TimePoint now);
  /// Records the end of the operation. Spans still open end now.
  void retire(Operation& operation, TimePoint now);

  [[nodiscard]] const std::deque<TraceSpan>& spans() const { return spans_; }
  [[nodiscard]] const std::deque<TraceOperation>& operations() const { return operations_; }
  /// Returns the number of dropped spans.
  [[nodiscard]] uint64_t forgotten() const { return forgotten_; }
  /// Returns the names of the tracks that have spans.
  [[nodiscard]] std::map<uint32_t, std::string> tracks() const;

 private:
  // The observed state of an operation in flight.
  struct Seen {
    TimePoint started{};
    std::vector<uint32_t> slices;   // of each instruction of the body
    std::vector<TimePoint> posted;  // of each (instruction, slice) of a message
    std::vector<TimePoint> told;    // of each (sync, slice)
  };
  Seen& seen(const Operation& operation);
  void note_stream_ends(Seen& seen, Operation& operation, TimePoint now);
  static TimePoint ready_time(const Seen& seen, const Operation& operation, lower::Issue issue);
  void end(Seen& seen, const Operation& operation, lower::Issue issue, uint32_t track,
           TimePoint ready, TimePoint now);
  static void note_signals(Seen& seen, const Operation& operation, lower::Issue issue,
                           TimePoint now);
  void add(const TraceSpan& span);

  std::unordered_map<const Operation*, Seen> in_flight_;
  std::map<uint32_t, TimePoint> track_ends_;
  std::deque<TraceSpan> spans_;
  std::deque<TraceOperation> operations_;
  uint64_t forgotten_ = 0;
};

/// Identifies the rank in a trace; a trace shows it as one process.
struct TraceProcess {
  int rank = 0;
  std::string name;  ///< "rank 0 (host a, pid 7)"
};
/// Returns Chrome's trace event format (catapult, "JSON Object Format"), which Perfetto and
/// chrome://tracing open. Times are wall-clock times, so that traces of several ranks line up.
std::string to_json(const Tracer& tracer, const TraceProcess& process);

}  // namespace hetccl::exec
