// Operations that begin one after the other and end one after the other. A communicator's
// collectives are one order. Messages have no order that all ranks share: each direction between
// two ranks is one, with a channel, streams and buffers of its own, so that a message that waits
// for its other end holds up nothing else.
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
  /// Gives `op`, which is to be operation `number`, the buffers it works in.
  Status give_buffers(Operation& op, uint64_t number);
  /// Gives it those of `turn`, which it had, or its own: of other Code, before it has begun.
  Status enlarge_buffers(Operation& op, const Rotation::Turn& turn);
  /// Of what is in flight, and of the buffers' turns.
  void release_waits();

  Recorder* const recorder;  ///< of its operations, or null
  InFlight in_flight;
  std::unique_ptr<Interpreter> interpreter;
  std::unique_ptr<Rotation> rotation;  ///< null: its buffers do not go by turns
};

/// What it takes for a cluster's library to carry the messages of an order: a communicator of the
/// two ranks.
struct MessageLibrary {
  explicit MessageLibrary(plan::RankPlan plan) : program(std::move(plan)) {}
  ccl::Communicator* pair = nullptr;
  Program program;
  std::unique_ptr<Interpreter> interpreter;
  std::unique_ptr<device::Stream> recorded;  ///< for graphs, beside what is in flight
};

/// The messages of one direction between this rank and another. Those of a rank to itself are one
/// order, too, and so are receives from any rank, which end in whatever order they are matched in.
struct MessageOrder : Order {
  MessageOrder(plan::RankPlan plan, const Clock& clock, Recorder* notes)
      : Order(notes, 8), program(std::move(plan)), route(clock) {}
  /// The interpreter of `op`, which is one of these.
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
  /// Its Code's user stream, or the library's; null where neither is to be.
  std::unique_ptr<device::Stream> stream;
  Route route;
  std::unique_ptr<MessageLibrary> library;  ///< null where it carries none
  uint64_t launched = 0;                    ///< the launching thread's
  TimePoint left{};  ///< when the peer was first seen to have left; the engine's
};

/// Both directions between this rank and another; of a rank and itself one is both, and from any
/// rank there are receives alone: the other is null.
struct MessageEnds {
  std::unique_ptr<MessageOrder> receives, sends;
};

/// The orders of an executor's messages, and what was launched in them.
class MessageOrders {
 public:
  explicit MessageOrders(int self) : self_(self) {}

  /// Where nobody drives, and before the first message of these.
  void add(int peer, MessageEnds ends);
  [[nodiscard]] MessageOrder& of(int peer, bool send) const;
  [[nodiscard]] MessageOrder& of(const Message& message) const {
    return of(message.peer, message.send);
  }
  /// All but that of receives from any rank.
  [[nodiscard]] const std::vector<MessageOrder*>& all() const { return all_; }

  /// Calls with messages that are in flight. Any thread reads it.
  std::atomic<size_t> calls{0};

  /// Hands operations to the engine. By the launching thread.
  void launch(std::span<Operation* const> operations);
  /// Puts them in flight: calls `visit(Operation&)` for each. The engine's, as the rest.
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
  /// Receives from any rank that are in flight: matched or not.
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
  std::vector<MessageEnds> by_peer_;  // of this rank: one, which sends
  MessageEnds any_;
  std::vector<MessageOrder*> all_;
  std::atomic<bool> has_launched_{false};
  std::mutex mutex_;  // guards what follows
  std::vector<Operation*> launched_;
  // The engine's.
  std::vector<Operation*> admitting_, from_any_;
};

}  // namespace hetccl::exec
