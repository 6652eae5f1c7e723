// Wakes a thread that waits for work.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/clock.h"

namespace hetccl {

/// Any number of threads ring; one waits.
class Bell {
 public:
  void ring() {
    {
      const std::lock_guard lock(mutex_);
      rung_ = true;
    }
    changed_.notify_one();
  }
  /// Waits until it rings, or returns at once if it rang since the last wait; after `limit` at the
  /// latest.
  void wait(Duration limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool rung_ = false;
};

}  // namespace hetccl
