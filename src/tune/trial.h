// Judges a candidate by the times of a trial's calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hetccl::tune {

/// The comparison of two settings' times.
struct Compared {
  double ratio = 1;  ///< first over second: the geometric mean of the middle half
  double error = 0;  ///< the standard error of log(ratio)
};
/// Compares pairs of times in microseconds; at least one pair.
[[nodiscard]] Compared compare(std::span<const double> tried, std::span<const double> beside);

/// Pairs of phases, one with the standing setting, one with the candidate (`tries_candidate`). They
/// alternate, so a temporary slowdown of the machine hits both.
class Trial {
 public:
  /// The first pair warms up: a candidate may have to connect ranks, or allocate memory.
  static constexpr uint32_t kFirstPhases = 6, kMorePhases = 8;

  /// Adds phases in order; `us` are the times of each phase's slowest rank. Returns the candidate's
  /// extra time over its partners, in total (negative: less).
  double add(std::span<const double> us);
  [[nodiscard]] bool empty() const { return logs_.empty(); }

  enum class Finding { Faster, NotFaster, Unclear };
  /// Returns whether the candidate takes less than 1 - `gain` of the time.
  [[nodiscard]] Finding finding(double gain) const;
  /// Returns the candidate's time over the standing one's: the geometric mean of the middle half.
  [[nodiscard]] double ratio() const { return ratio_; }
  /// Returns the median time of phases with the standing setting.
  [[nodiscard]] double standing_us() const { return standing_us_; }

 private:
  // The trial ends after this many pairs.
  static constexpr size_t kMostPairs = 18;
  std::vector<double> logs_;  // of the ratio of each pair
  std::vector<double> standing_;
  double ratio_ = 1, error_ = 0, standing_us_ = 0;
};

}  // namespace hetccl::tune
