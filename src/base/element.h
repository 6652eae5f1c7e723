// The element types: their layout in memory (`Word`), their accumulation type (`Sum`), and the
// conversions between the two, inlined into the kernels of base/reduce.cc. Conversions have no
// branches, so that compilers vectorise them.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>

namespace hetccl::element {

template <typename T>
struct Plain {
  using Word = T;
  using Sum = T;
  [[gnu::always_inline]] static Sum load(Word word) { return word; }
  [[gnu::always_inline]] static Word store(Sum sum) {
    if constexpr (std::floating_point<T>)
      return sum != sum ? std::numeric_limits<T>::quiet_NaN() : sum;
    else
      return sum;
  }
};

/// 8- and 16-bit integers whose sum must not wrap before it is divided.
template <typename T, typename Wide>
struct Widened {
  using Word = T;
  using Sum = Wide;
  [[gnu::always_inline]] static Sum load(Word word) { return word; }
  [[gnu::always_inline]] static Word store(Sum sum) { return static_cast<Word>(sum); }
};

struct BFloat {
  using Word = uint16_t;
  using Sum = float;
  [[gnu::always_inline]] static Sum load(Word word) {
    return std::bit_cast<float>(static_cast<uint32_t>(word) << 16);
  }
  [[gnu::always_inline]] static Word store(Sum sum) {
    const uint32_t bits = std::bit_cast<uint32_t>(sum);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    return static_cast<Word>(sum != sum ? 0x7fc0U : rounded);
  }
};

/// After Fabian Giesen's float_to_half_fast3_rtne.
struct Half {
  using Word = uint16_t;
  using Sum = float;
  [[gnu::always_inline]] static Sum load(Word word) {
    const uint32_t magnitude = static_cast<uint32_t>(word & 0x7fffU) << 13;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
    const uint32_t special = magnitude >= 0x0f800000U ? 0x7f800000U : 0U;
    const uint32_t sign = static_cast<uint32_t>(word & 0x8000U) << 16;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
  }
  [[gnu::always_inline]] static Word store(Sum sum) {
    const uint32_t bits = std::bit_cast<uint32_t>(sum);
    const uint32_t magnitude = bits & 0x7fffffffU;
    // Below 2^-14, adding 0.5 makes the adder round at a half's last denormal bit.
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    const uint32_t normal = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
    uint32_t half = magnitude < 0x38800000U ? small : normal;
    half = magnitude >= 0x477ff000U ? 0x7c00U : half;
    half |= (bits >> 16) & 0x8000U;
    return static_cast<Word>(magnitude > 0x7f800000U ? 0x7e00U : half);
  }
};

/// The 8-bit floats of the Open Compute Project: `kFraction` bits of fraction, an exponent biased
/// by `kBias`; `kLargest` is the code of the largest finite value, followed by an infinity if there
/// is one, and NaNs. Storing saturates, as CUDA's conversions (and so NCCL's kernels) do: larger
/// values, infinities included, become the largest finite one.
template <int kFraction, int kBias, uint32_t kLargest, bool kHasInfinity>
struct Float8 {
  using Word = uint8_t;
  using Sum = float;
  [[gnu::always_inline]] static Sum load(Word word) {
    const uint32_t magnitude = word & 0x7fU;
    const uint32_t normal = (magnitude << kShift) + kRebias;
    // A denormal is an integer multiple of the smallest one. Convert through int, which takes one
    // instruction.
    const uint32_t small =
        std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * kLeast);
    uint32_t bits = magnitude < (1U << kFraction) ? small : normal;
    bits = magnitude > kLargest ? 0x7fc00000U : bits;
    bits = kHasInfinity && magnitude == kLargest + 1 ? 0x7f800000U : bits;
    return std::bit_cast<float>(bits | (word & 0x80U) << 24);
  }
  [[gnu::always_inline]] static Word store(Sum sum) {
    const uint32_t bits = std::bit_cast<uint32_t>(sum);
    const uint32_t magnitude = bits & 0x7fffffffU;
    // Below the least normal: if the sum's last bit is worth the least denormal, the adder rounds
    // right.
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + kRounder) - kRounderBits;
    const uint32_t normal =
        (magnitude - kRebias + (1U << (kShift - 1)) - 1U + ((magnitude >> kShift) & 1U)) >> kShift;
    uint32_t code = magnitude < kRebias + (1U << 23) ? small : normal;
    code = code > kLargest ? kLargest : code;
    code |= (bits >> 24) & 0x80U;
    return static_cast<Word>(magnitude > 0x7f800000U ? 0x7fU : code);
  }
  /// Stores values that round to finite ones, in fewer steps.
  [[gnu::always_inline]] static Word store_finite(Sum sum) {
    const int32_t bits = std::bit_cast<int32_t>(sum);
    const int32_t magnitude = bits & 0x7fffffff;
    const int32_t exponent = std::max(magnitude & 0x7f800000, kLeastNormal);
    // Adding this to a number of this exponent makes the adder round to whole steps between codes.
    const int32_t rounder = exponent + (kShift << 23);
    const int32_t steps =
        std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(rounder)) -
        rounder;
    const int32_t code = steps + ((exponent - kLeastNormal) >> kShift);
    return static_cast<Word>(code | (bits >> 24 & 0x80));
  }

 private:
  static constexpr int kShift = 23 - kFraction;
  static constexpr int32_t kLeastNormal = (128 - kBias) << 23;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  static constexpr float kLeast =
      std::bit_cast<float>(static_cast<uint32_t>(128 - kBias - kFraction) << 23);
  static constexpr uint32_t kRounderBits = static_cast<uint32_t>(151 - kBias - kFraction) << 23;
  static constexpr float kRounder = std::bit_cast<float>(kRounderBits);
};
using E4m3 = Float8<3, 7, 0x7e, false>;
using E5m2 = Float8<2, 15, 0x7b, true>;

}  // namespace hetccl::element
