#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace hetccl::tune {

/// Of at least one value; of an even number the mean of the two in the middle.
[[nodiscard]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Of at least one value: the mean without the smallest and the largest eighth. Where ranks are
/// ahead of each other by turns, a rank's times are of two kinds, and the median is one of them.
[[nodiscard]] inline double trimmed_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 8);
  const auto begin = values.begin() + cut, end = values.end() - cut;
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

}  // namespace hetccl::tune
