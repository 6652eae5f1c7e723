// The engine's side of the one interpreter of Code: the queues of lanes, which hand messages to
// channels and acknowledge what was read in windows.
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
  Window* window = nullptr;   ///< what this rank's device shares with it, or null; outlives all use
  bool direct = true;         ///< the transport reads and writes the memory of this rank's device
  bool registered = false;    ///< it does so where it knows the memory alone
  bool registers = false;     ///< it has a use for registered memory
  bool for_messages = false;  ///< the channel carries messages, not collectives
};

struct WireOptions {
  uint64_t collectives = 0;  ///< the communicator's number in headers
  uint64_t messages = 0;     ///< the same in those of messages
  ccl::Communicator* ccl = nullptr;
  Tracer* tracer = nullptr;  ///< may be null
};

/// By whoever drives, unless noted.
class Wire {
 public:
  /// The operations whose messages a lane carries.
  struct Carried {
    InFlight* sent = nullptr;
    InFlight* received = nullptr;
  };

  explicit Wire(WireOptions options) : options_(std::move(options)) {}

  /// Before the first operation that exchanges messages with that rank, and again once its channel
  /// is made.
  void connect(const Peer& peer, const Carried& carried);
  /// Posts a receive that names no rank.
  void receive_any(Operation& op) { any_.post(op); }
  /// The windows of `peers` for collectives, null where there is none. By the launching thread.
  void find_windows(const std::vector<int>& peers, std::vector<Window*>& windows) const;
  /// How collectives reach each of `peers`, all of which are connected. By the launching thread.
  [[nodiscard]] std::vector<lower::Reach> reach_of(const std::vector<int>& peers) const;

  /// Posts what may start and takes up what is complete: true when anything moved.
  bool poll(TimePoint now);
  /// InternalError once an invariant is broken: the defect is hetccl's own, and data cannot be
  /// trusted. Nothing moves after it.
  [[nodiscard]] const Status& status() const { return status_; }
  /// Gives credit for what the device has read, and learns of the credit that others gave: true
  /// when any changed.
  bool exchange_credit();
  /// Counts what the device has read.
  void acknowledge_reads();
  void close();

  /// The fault of a peer that has abandoned its window, if one has: its data cannot be trusted.
  [[nodiscard]] std::optional<Fault> find_abandoned() const;
  void abandon_windows();
  /// After an abort, until all are released: ends the device's waits for credit. A released device
  /// may overwrite messages that the peer has not read, and the peer may pass them on; so a window
  /// is released once the peer has abandoned it, or a while after the first call.
  void release_windows(TimePoint now);
  /// Whether a window has messages that the other end has not read, as far as is known.
  [[nodiscard]] bool has_unread() const;

  /// A lane with a message under way whose channel has failed.
  struct Broken {
    int peer = -1;
    const Status* status = nullptr;
    Operation* operation = nullptr;
  };
  [[nodiscard]] std::optional<Broken> find_broken();
  /// The peers from or to whom collectives have messages under way.
  [[nodiscard]] std::vector<int> awaited_peers();
  /// The next message of a collective that is to complete, of all lanes the first.
  [[nodiscard]] std::optional<lower::Issue> first_incomplete(const Operation& op);

  [[nodiscard]] uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

 private:
  // A position in a lane's list, over all operations. A receive that named no rank comes between
  // them once the lane's peer has a message for it: a visitor.
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
    Cursor next{};           ///< to run
    Cursor complete{};       ///< to complete
    uint64_t completed = 0;  ///< of the channel's counter
    uint32_t posted = 0;     ///< messages that are not complete
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
  // The instruction of an operation that a cursor has come to, or none: there is none yet.
  struct Pending {
    Operation* op = nullptr;
    lower::Issue issue{0, lower::kEnd};
  };

  [[nodiscard]] Lane* find(int peer, bool for_messages);
  /// Calls `visit(i, lane)` for the lane of collectives to each `peers[i]` that has one; `peers`
  /// ascend.
  template <typename Visit>
  void for_each_of(const std::vector<int>& peers, Visit&& visit) const;
  void use(Lane& lane, transport::Channel* channel);
  /// The instruction at `cursor`, which first leaves operations that have no more.
  static Pending at(const Lane& lane, const Queue& queue, Cursor& cursor);
  static Pending next_message(const Lane& lane, Queue& queue);
  bool run(Lane& lane, Queue& queue, TimePoint now);
  bool complete(Lane& lane, Queue& queue, TimePoint now);
  bool may_start(Lane& lane, Pending pending);
  bool begin_receive(Lane& lane, Operation& op);
  void post(Lane& lane, Queue& queue, Pending pending, TimePoint now);
  bool finish_message(Lane& lane, Queue& queue, Pending pending, TimePoint now);
  /// Gives receives that name no rank what has come. True when any got something.
  bool match_any();
  bool match_any(Lane& lane);
  /// `holds`; where it does not, `status` tells that `invariant` is broken.
  bool require(bool holds, const Lane& lane, const char* invariant);

  WireOptions options_;
  std::deque<Lane> lanes_;     // by peers as they were connected
  std::vector<Lane*> shared_;  // that have windows
  AnySource any_;
  size_t next_any_ = 0;  // the index in `lanes_` of the first to be asked
  std::atomic<uint64_t> bytes_sent_{0};
  std::optional<TimePoint> releasing_since_;
  Status status_;
};

}  // namespace hetccl::exec
