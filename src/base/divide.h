// Arithmetic of lengths.
#pragma once

#include <cstdint>
#include <limits>

namespace hetccl {

/// Returns the least number of parts of `unit` that hold `value`.
constexpr uint64_t divide_up(uint64_t value, uint64_t unit) {
  return value / unit + (value % unit != 0 ? 1 : 0);
}

/// Returns the least multiple of `unit` that is at least `value`; wraps around beyond the largest.
constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return divide_up(value, unit) * unit;
}

/// Returns a * b, or the largest number on overflow.
constexpr uint64_t multiply_saturated(uint64_t a, uint64_t b) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  return b != 0 && a > kMost / b ? kMost : a * b;
}

}  // namespace hetccl
