#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hetccl::tune {

/// Of at least one value; of an even number the mean of the two in the middle.
[[nodiscard]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace hetccl::tune
