#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace hetccl::tune {

/// Returns the median of at least one value; of an even number, the mean of the middle two.
[[nodiscard]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Returns the mean of at least one value without the smallest and largest eighth. If ranks lead
/// each other in turns, a rank's times are of two kinds, and the median would pick one of them.
[[nodiscard]] inline double trimmed_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 8);
  const auto begin = values.begin() + cut, end = values.end() - cut;
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

}  // namespace hetccl::tune
