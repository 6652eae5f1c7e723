// When the program's steps begin, found in its calls: training makes the same calls in every step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace hetccl::nccl_tuner {

/// Not thread-safe. Pure: the clock is the caller's.
class Steps {
 public:
  /// Calls of a step, at most.
  static constexpr size_t kMostPeriod = 1024;
  /// Short steps are taken together, so many calls or so long: calls are enqueued ahead of the
  /// device's work, and a short time says little of it.
  static constexpr uint64_t kMostTogether = 128;
  static constexpr std::chrono::milliseconds kLeastStep{50};

  /// Before each call; whether a step begins with it. `call`: alike for like calls.
  bool begins(uint64_t call, TimePoint now);
  /// Calls after which the program repeats itself; 0: not known.
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
