// A communicator that is prepared but not begun. One thread may own several ranks that wait for
// each other, so it begins all of them before it waits for any.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/status.h"

namespace hetccl::comm {

class Chores;
class Communicator;

/// One rank's part in making a communicator. Call once: `run`, or `start` and `wait`, or `give_up`.
/// One thread at a time.
class Making {
 public:
  Making(Making&&) = default;
  Making& operator=(Making&&) = delete;
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;
  /// Fails the communicator if none of these was called, as when a thread ends inside a group.
  ~Making();
  /// Returns the communicator, which is not ready yet. Null: this rank is not a member.
  [[nodiscard]] std::shared_ptr<Communicator> communicator() const {
    return joins_ ? child_ : nullptr;
  }
  /// Sets it up on the calling thread, or in the background if it is non-blocking.
  Status run();
  /// Sets it up in the background.
  Status start();
  /// After `start`: waits until it is set up, if it is blocking.
  Status wait() const;
  /// Fails the communicator, which no rank of this process has begun to set up.
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
  std::shared_ptr<Communicator> parent_;  // split or shrunk for this one; or null
  std::function<Status()> work_;
  bool joins_;
  mutable bool is_used_ = false;
  std::shared_ptr<Status> outcome_ = std::make_shared<Status>();  // result of `start`
};

}  // namespace hetccl::comm
