// The ranks that have left a communicator, for its executor.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>

namespace hetccl::exec {

/// Thread-safe.
class Departures {
 public:
  /// Records that `rank` has left after `called` calls.
  void add(int rank, uint64_t called) {
    std::lock_guard lock(mutex_);
    left_.insert(rank);
    if (called >= least_called_.load(std::memory_order_relaxed)) return;
    rank_ = rank;
    least_called_.store(called, std::memory_order_release);
  }
  /// Returns the first operation number that lacks a rank; UINT64_MAX while no rank has left.
  [[nodiscard]] uint64_t first_incomplete() const {
    return least_called_.load(std::memory_order_acquire);
  }
  /// Returns a rank that `first_incomplete` lacks; -1: none.
  [[nodiscard]] int rank() const {
    std::lock_guard lock(mutex_);
    return rank_;
  }

  [[nodiscard]] bool has_left(int rank) const {
    if (first_incomplete() == UINT64_MAX) return false;
    std::lock_guard lock(mutex_);
    return left_.contains(rank);
  }

 private:
  mutable std::mutex mutex_;  // guards what follows, and additions
  int rank_ = -1;
  std::set<int> left_;
  std::atomic<uint64_t> least_called_{UINT64_MAX};
};

}  // namespace hetccl::exec
