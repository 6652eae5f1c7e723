// The engine's half of the interpreter of Code: runs the lanes' queues, which post messages to
// channels and acknowledge reads in windows.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ccl/ccl.h"
#include "exec/any_source.h"
#include "exec/fault.h"
#include "exec/in_flight.h"
#include "exec/recorder.h"
#include "exec/tracer.h"
#include "exec/window.h"
#include "transport/transport.h"

namespace hetccl::exec {

/// How an executor reaches another rank.
struct Peer {
  int rank = -1;
  transport::Channel* channel = nullptr;  ///< null while it is being made: messages wait
  bool crosses = true;                    ///< into another cluster
  Window* window = nullptr;   ///< shared with this rank's device, or null; outlives all use
  bool direct = true;         ///< the transport accesses this rank's device memory
  bool registered = false;    ///< it does so only for registered memory
  bool registers = false;     ///< it can use registered memory
  bool for_messages = false;  ///< the channel carries messages, not collectives
};

struct WireOptions {
  uint64_t collectives = 0;  ///< the communicator's number in headers of collectives
  uint64_t messages = 0;     ///< the communicator's number in headers of messages
  ccl::Communicator* ccl = nullptr;
  Tracer* tracer = nullptr;  ///< may be null
};

/// Used by the driving thread, unless noted.
class Wire {
 public:
  /// The operations whose messages a lane carries.
  struct Carried {
    InFlight* sent = nullptr;
    InFlight* received = nullptr;
  };

  explicit Wire(WireOptions options) : options_(std::move(options)) {}

  /// Call before the first operation that exchanges messages with that rank, and again once its
  /// channel exists.
  void connect(const Peer& peer, const Carried& carried);
  /// Posts an any-source receive.
  void receive_any(Operation& op) { any_.post(op); }
  /// Finds the windows of `peers` for collectives; null: none. Called by the launching thread.
  void find_windows(const std::vector<int>& peers, std::vector<Window*>& windows) const;
  /// Returns how collectives reach each of `peers`; all must be connected. Called by the launching
  /// thread.
  [[nodiscard]] std::vector<lower::Reach> reach_of(const std::vector<int>& peers) const;

  /// Posts messages that may start and completes those that are done. Returns true if anything
  /// moved.
  bool poll(TimePoint now);
  /// Returns InternalError once an invariant is broken: a defect of hetccl, so data cannot be
  /// trusted. Nothing moves afterwards.
  [[nodiscard]] const Status& status() const { return status_; }
  /// Grants credit for the device's reads, and takes up credit granted by peers. Returns true if
  /// any changed.
  bool exchange_credit();
  /// Counts the device's reads.
  void acknowledge_reads();
  void close();

  /// Returns the fault of a peer that has aborted its window, if any: its data cannot be trusted.
  [[nodiscard]] std::optional<Fault> find_abandoned() const;
  void abandon_windows();
  /// Ends the device's waits for credit after an abort; call repeatedly until all are released. A
  /// released device may overwrite messages that the peer has not read and would pass on. So each
  /// window is released once the peer has aborted it too, or kFarewell after the first call.
  void release_windows(TimePoint now);
  /// Returns whether, as far as known, some peer has unread messages in its window.
  [[nodiscard]] bool has_unread() const;

  /// A lane with a message under way whose channel has failed.
  struct Broken {
    int peer = -1;
    const Status* status = nullptr;
    Operation* operation = nullptr;
  };
  [[nodiscard]] std::optional<Broken> find_broken();
  /// Returns the peers with which collectives have messages under way.
  [[nodiscard]] std::vector<int> awaited_peers();
  /// Returns the first message of collective `op`, over all lanes, that is not complete.
  [[nodiscard]] std::optional<lower::Issue> first_incomplete(const Operation& op);

  [[nodiscard]] uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

 private:
  // A position in a lane's list, over all operations. A visitor is an any-source receive, inserted
  // between operations when its lane's peer has a message for it.
  struct Cursor {
    uint64_t operation = 0;
    lower::Walk walk{};
    Operation* visitor = nullptr;
    lower::Walk visit{};
    void advance() { (visitor != nullptr ? visit : walk).advance(); }
  };
  // One queue of a lane: walks the instructions of all operations in order.
  struct Queue {
    lower::QueueKind kind{};
    Cursor next{};           ///< next instruction to run
    Cursor complete{};       ///< next instruction to complete
    uint64_t completed = 0;  ///< the channel's counter, as last seen
    uint32_t posted = 0;     ///< messages posted and not complete
    InFlight* operations = nullptr;
  };
  struct Lane {
    int peer = -1;
    bool crosses = true;
    bool for_messages = false;
    transport::Channel* channel = nullptr;
    Window* window = nullptr;
    bool direct = true;
    bool registered = false;
    bool released = false;  ///< its device's waits for credit, after an abort
    uint64_t begun = 0;     ///< messages that it began to receive
    Queue sends{lower::QueueKind::Send}, recvs{lower::QueueKind::Recv},
        acknowledgements{lower::QueueKind::Acknowledge};
    [[nodiscard]] bool idle() const {
      return sends.operations->empty() && recvs.operations->empty() &&
             recvs.complete.visitor == nullptr;
    }
  };
  // The instruction at a cursor, with its operation; null: none yet.
  struct Pending {
    Operation* op = nullptr;
    lower::Issue issue{0, lower::kEnd};
  };

  [[nodiscard]] Lane* find(int peer, bool for_messages);
  /// Calls `visit(i, lane)` for each `peers[i]` that has a lane of collectives. `peers` ascend.
  template <typename Visit>
  void for_each_of(const std::vector<int>& peers, Visit&& visit) const;
  void use(Lane& lane, transport::Channel* channel);
  /// Returns the instruction at `cursor`, after skipping operations without further instructions.
  static Pending at(const Lane& lane, const Queue& queue, Cursor& cursor);
  static Pending next_message(const Lane& lane, Queue& queue);
  bool run(Lane& lane, Queue& queue, TimePoint now);
  bool complete(Lane& lane, Queue& queue, TimePoint now);
  bool may_start(Lane& lane, Pending pending);
  bool begin_receive(Lane& lane, Operation& op);
  void post(Lane& lane, Queue& queue, Pending pending, TimePoint now);
  bool finish_message(Lane& lane, Queue& queue, Pending pending, TimePoint now);
  /// Matches arrived messages to any-source receives. Returns true if any matched.
  bool match_any();
  bool match_any(Lane& lane);
  /// If `holds` is false, sets `status`: `invariant` is broken.
  bool require(bool holds, const Lane& lane, const char* invariant);

  WireOptions options_;
  std::deque<Lane> lanes_;     // in the order of connecting
  std::vector<Lane*> shared_;  // lanes with windows
  AnySource any_;
  size_t next_any_ = 0;  // the index in `lanes_` that is asked first
  std::atomic<uint64_t> bytes_sent_{0};
  std::optional<TimePoint> releasing_since_;
  Status status_;
};

}  // namespace hetccl::exec
