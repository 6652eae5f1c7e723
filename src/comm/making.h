// A communicator that is prepared and not begun. One thread may have several ranks, which wait for
// each other: it begins all of them before it waits for any.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/status.h"

namespace hetccl::comm {

class Chores;
class Communicator;

/// One rank's part in making a communicator: `run`, or `start` and `wait`, or `give_up`, once. By
/// one thread at a time.
class Making {
 public:
  Making(Making&&) = default;
  Making& operator=(Making&&) = delete;
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;
  /// Lets the communicator fail where nothing else was done, as when a thread ends in its group.
  ~Making();
  /// The communicator to come, which is being set up until then. Null where this rank will be in
  /// none.
  [[nodiscard]] std::shared_ptr<Communicator> communicator() const {
    return joins_ ? child_ : nullptr;
  }
  /// Makes it on the calling thread, or in the background where it is not blocking.
  Status run();
  /// Makes it in the background.
  Status start();
  /// After `start`: waits until it is made, where it is blocking.
  Status wait() const;
  /// Lets the communicator fail, in which no rank of this process has begun to take part.
  void give_up(const Status& why) const;

 private:
  friend class Communicator;
  Making(std::shared_ptr<Communicator> child, std::shared_ptr<Communicator> parent,
         std::function<Status()> work, bool joins = true)
      : child_(std::move(child)),
        parent_(std::move(parent)),
        work_(std::move(work)),
        joins_(joins) {}
  [[nodiscard]] Chores& chores() const;

  std::shared_ptr<Communicator> child_;
  std::shared_ptr<Communicator> parent_;  // of whose ranks it is made; or null
  std::function<Status()> work_;
  bool joins_;
  mutable bool is_used_ = false;
  std::shared_ptr<Status> outcome_ = std::make_shared<Status>();  // of `start`
};

}  // namespace hetccl::comm
