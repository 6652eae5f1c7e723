// Operations that begin and end in FIFO order. A communicator's collectives are one order. Messages
// have no order that all ranks share, so each direction between two ranks is its own order, with
// its own channel, streams and buffers. A message that waits for its peer blocks no other
// direction.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ccl/ccl.h"
#include "exec/in_flight.h"
#include "exec/interpreter.h"
#include "exec/recorder.h"
#include "exec/rotation.h"
#include "exec/route.h"
#include "exec/window.h"

namespace hetccl::exec {

struct Order {
  explicit Order(Recorder* notes, size_t room = InFlight::kMost)
      : recorder(notes), in_flight(room) {}
  /// Gives `op`, which becomes operation `number`, its work buffers.
  Status give_buffers(Operation& op, uint64_t number);
  /// Enlarges the buffers of `turn`, or the operation's own, for other Code. Call before `op` has
  /// begun.
  Status enlarge_buffers(Operation& op, const Rotation::Turn& turn);
  /// Releases the waits of operations in flight and of the buffers' turns.
  void release_waits();

  Recorder* const recorder;  ///< records its operations, or null
  InFlight in_flight;
  std::unique_ptr<Interpreter> interpreter;
  std::unique_ptr<Rotation> rotation;  ///< null: buffers do not take turns
};

/// The state that a cluster's library needs to carry the messages of an order: a communicator of
/// the two ranks, and the Code for it.
struct MessageLibrary {
  explicit MessageLibrary(plan::RankPlan plan) : program(std::move(plan)) {}
  ccl::Communicator* pair = nullptr;
  Program program;
  std::unique_ptr<Interpreter> interpreter;
  std::unique_ptr<device::Stream> recorded;  ///< for graphs, next to operations in flight
};

/// The messages of one direction between this rank and a peer. A rank's messages to itself are one
/// order. So are its receives from any rank, which end in the order in which they match.
struct MessageOrder : Order {
  MessageOrder(plan::RankPlan plan, const Clock& clock, Recorder* notes)
      : Order(notes, 8), program(std::move(plan)), route(clock) {}
  /// Returns the interpreter of `op`, which is of this order.
  [[nodiscard]] Interpreter& interpreter_of(const Operation& op) const {
    return op.by_library ? *library->interpreter : *interpreter;
  }

  int peer = -1;
  bool send = false;
  Window* window = nullptr;
  plan::Choice choice;
  Program program;
  bool needs_no_copy = false;                  ///< see lower::Reach
  bool registered = false, registers = false;  ///< see Peer
  /// The stream for its Code's user queue, or for the library; null: neither is needed.
  std::unique_ptr<device::Stream> stream;
  Route route;
  std::unique_ptr<MessageLibrary> library;  ///< null: the library carries nothing
  uint64_t launched = 0;                    ///< used by the launching thread
  TimePoint left{};                         ///< when the engine first saw that the peer has left
};

/// The two directions between this rank and a peer. For a rank and itself, one order serves both;
/// for any-source there are only receives. The other order is null then.
struct MessageEnds {
  std::unique_ptr<MessageOrder> receives, sends;
};

/// The orders of an executor's messages, and the messages launched in them.
class MessageOrders {
 public:
  explicit MessageOrders(int self) : self_(self) {}

  /// Call under Engine::exclusively, before the first message of these.
  void add(int peer, MessageEnds ends);
  [[nodiscard]] MessageOrder& of(int peer, bool send) const;
  [[nodiscard]] MessageOrder& of(const Message& message) const {
    return of(message.peer, message.send);
  }
  /// Returns all orders, except that of receives from any rank.
  [[nodiscard]] const std::vector<MessageOrder*>& all() const { return all_; }

  /// Calls with messages in flight. Any thread may read it.
  std::atomic<size_t> calls{0};

  /// Hands operations to the engine. Called by the launching thread.
  void launch(std::span<Operation* const> operations);
  /// Puts the launched operations in flight and calls `visit(Operation&)` for each. The engine
  /// calls this and everything below.
  template <typename Visit>
  void admit(Visit&& visit) {
    if (!has_launched_.load(std::memory_order_acquire)) return;
    {
      const std::lock_guard lock(mutex_);
      std::swap(admitting_, launched_);
      has_launched_.store(false, std::memory_order_relaxed);
    }
    for (Operation* op : admitting_) {
      op->message.peer == kAnyRank ? from_any_.push_back(op)
                                   : static_cast<void>(op->order->in_flight.launch(*op));
      visit(*op);
    }
    admitting_.clear();
  }
  /// Returns the any-source receives in flight, matched or not.
  [[nodiscard]] std::vector<Operation*>& from_any() { return from_any_; }
  template <typename Visit>
  void for_each_in_flight(Visit&& visit) {
    for (MessageOrder* order : all_) {
      InFlight& operations = order->in_flight;
      for (uint64_t n = operations.oldest(); n < operations.end(); ++n) visit(operations.at(n));
    }
    for (Operation* op : from_any_) visit(*op);
  }

 private:
  const int self_;
  std::vector<MessageEnds> by_peer_;  // this rank's own entry has one order, which sends
  MessageEnds any_;
  std::vector<MessageOrder*> all_;
  std::atomic<bool> has_launched_{false};
  std::mutex mutex_;  // guards what follows
  std::vector<Operation*> launched_;
  // Used by the engine.
  std::vector<Operation*> admitting_, from_any_;
};

}  // namespace hetccl::exec
