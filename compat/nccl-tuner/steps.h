// Finds the beginnings of the program's steps from its calls: training makes the same calls in
// every step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace hetccl::nccl_tuner {

/// Not thread-safe. Pure: the caller passes the time.
class Steps {
 public:
  /// Most calls of one period.
  static constexpr size_t kMostPeriod = 1024;
  /// Short periods are merged into steps of at least kLeastStep, or of up to kMostTogether calls:
  /// calls are enqueued ahead of the device's work, so a short time is inaccurate.
  static constexpr uint64_t kMostTogether = 128;
  static constexpr std::chrono::milliseconds kLeastStep{50};

  /// Called before each call; returns whether a step begins with it. `call` is equal for equal
  /// calls.
  bool begins(uint64_t call, TimePoint now);
  /// Number of calls after which the program repeats itself; 0: unknown.
  [[nodiscard]] size_t period() const { return period_; }

 private:
  [[nodiscard]] bool repeats(size_t period) const;
  [[nodiscard]] uint64_t at(size_t ago) const;
  bool count(TimePoint now);
  void search();

  std::vector<uint64_t> history_;  // a ring
  uint64_t n_calls_ = 0;
  uint64_t next_search_ = 16;
  size_t period_ = 0;
  uint64_t together_ = 0;  // periods in a step; 0: not measured yet
  uint64_t in_step_ = 0;   // calls
  TimePoint measured_from_;
};

}  // namespace hetccl::nccl_tuner
