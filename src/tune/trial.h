// What the times of a trial's calls say of a candidate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hetccl::tune {

/// What times of one setting beside those of another say.
struct Compared {
  double ratio = 1;  ///< of the first setting's time: the geometric mean of the middle half of all
  double error = 0;  ///< the standard error of its logarithm
};
/// `tried` and `beside` are pairs, in microseconds; at least one.
[[nodiscard]] Compared compare(std::span<const double> tried, std::span<const double> beside);

/// Pairs of phases, one with the setting that stands, one with the candidate (`tries_candidate`).
/// They alternate, so what slows the machine for a while slows both.
class Trial {
 public:
  /// The first pair warms up: a candidate may have to connect ranks, or take memory.
  static constexpr uint32_t kFirstPhases = 6, kMorePhases = 8;

  /// `us`: one phase after the other, each as long as its slowest rank took. What the candidate's
  /// took more (less: negative) than their partners, in all.
  double add(std::span<const double> us);
  [[nodiscard]] bool empty() const { return logs_.empty(); }

  enum class Finding { Faster, NotFaster, Unclear };
  /// Whether the candidate takes less than 1 - `gain` of the time.
  [[nodiscard]] Finding finding(double gain) const;
  /// The candidate's time over the other's: the geometric mean of the middle half of all pairs.
  [[nodiscard]] double ratio() const { return ratio_; }
  /// The median time of phases with the setting that stands.
  [[nodiscard]] double standing_us() const { return standing_us_; }

 private:
  // With so many pairs the trial ends.
  static constexpr size_t kMostPairs = 18;
  std::vector<double> logs_;  // of the pairs' ratios
  std::vector<double> standing_;
  double ratio_ = 1, error_ = 0, standing_us_ = 0;
};

}  // namespace hetccl::tune
