// The ranks that have left a communicator, as its executor wants to know them.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace hetccl::exec {

/// Thread-safe.
class Departures {
 public:
  /// `rank` has left after `called` calls, and makes no more.
  void add(int rank, uint64_t called) {
    std::lock_guard lock(mutex_);
    if (called >= least_called_.load(std::memory_order_relaxed)) return;
    rank_ = rank;
    least_called_.store(called, std::memory_order_release);
  }
  /// Operations from this number on miss a rank; UINT64_MAX while all are there.
  [[nodiscard]] uint64_t first_incomplete() const {
    return least_called_.load(std::memory_order_acquire);
  }
  /// A rank that misses `first_incomplete`, or -1.
  [[nodiscard]] int rank() const {
    std::lock_guard lock(mutex_);
    return rank_;
  }

 private:
  mutable std::mutex mutex_;  // guards `rank_`, and additions
  int rank_ = -1;
  std::atomic<uint64_t> least_called_{UINT64_MAX};
};

}  // namespace hetccl::exec
