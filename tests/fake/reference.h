// What a reduction must give, computed one element at a time and unlike the library computes it.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "base/types.h"

namespace hetccl::fake {

inline constexpr DataType kTypes[] = {DataType::Int8,     DataType::Uint8,   DataType::Int16,
                                      DataType::Uint16,   DataType::Int32,   DataType::Uint32,
                                      DataType::Int64,    DataType::Uint64,  DataType::Float16,
                                      DataType::BFloat16, DataType::Float32, DataType::Float64};
inline constexpr RedOp kOps[] = {RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min, RedOp::Avg};

/// A 16-bit float with `fraction` bits of mantissa and the least normal exponent `least`.
struct SmallFloat {
  int fraction, least;
  [[nodiscard]] float decode(uint16_t bits) const {
    const int magnitude = bits & 0x7fff, exponent = magnitude >> fraction;
    const int mantissa = magnitude & ((1 << fraction) - 1), top = 0x7fff >> fraction;
    double value = exponent == top ? (mantissa ? NAN : INFINITY)
                   : exponent == 0
                       ? std::ldexp(mantissa, least - fraction)
                       : std::ldexp(mantissa + (1 << fraction), exponent - 1 + least - fraction);
    return static_cast<float>(bits & 0x8000 ? -value : value);
  }
  [[nodiscard]] uint16_t encode(float value) const {
    const int infinity = (0x7fff >> fraction) << fraction;
    if (std::isnan(value)) return static_cast<uint16_t>(infinity | (1 << (fraction - 1)));
    const int sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
    if (value == 0) return static_cast<uint16_t>(sign);
    int exponent = 0;
    std::frexp(value, &exponent);
    const int e = std::max(exponent - 1, least);
    const double units = std::nearbyint(std::ldexp(std::fabs(double{value}), fraction - e));
    int bits = static_cast<int>(units) + ((e - least) << fraction);
    if (bits > infinity) bits = infinity;
    return static_cast<uint16_t>(sign | bits);
  }
};
inline constexpr SmallFloat kHalf{10, -14}, kBFloat{7, -126};

template <typename T>
T reference_combine(RedOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (op == RedOp::Prod) return a * b;
    if (op == RedOp::Max) return a > b ? a : b;
    if (op == RedOp::Min) return a < b ? a : b;
    return a + b;
  } else {
    if (op == RedOp::Max) return a > b ? a : b;
    if (op == RedOp::Min) return a < b ? a : b;
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<T>(op == RedOp::Prod ? x * y : x + y);
  }
}

/// `Sum` accumulates, `load` and `store` convert.
template <typename Word, typename Sum, typename Load, typename Store>
void reference_fold(void* dst, std::span<const void* const> srcs, size_t count, RedOp op,
                    uint32_t divisor, Load load, Store store) {
  for (size_t i = 0; i < count; ++i) {
    Word word;
    Sum sum{};
    for (size_t s = 0; s < srcs.size(); ++s) {
      std::memcpy(&word, static_cast<const std::byte*>(srcs[s]) + i * sizeof word, sizeof word);
      sum = s == 0 ? load(word) : reference_combine<Sum>(op, sum, load(word));
    }
    if (op == RedOp::Avg) {
      if constexpr (std::is_floating_point_v<Sum>)
        sum = sum / static_cast<Sum>(divisor);
      else if constexpr (std::is_signed_v<Sum>)
        sum = static_cast<Sum>(sum / static_cast<int64_t>(divisor));
      else
        sum = static_cast<Sum>(sum / divisor);
    }
    if constexpr (std::is_floating_point_v<Sum>)
      if (std::isnan(sum)) sum = std::numeric_limits<Sum>::quiet_NaN();
    word = store(sum);
    std::memcpy(static_cast<std::byte*>(dst) + i * sizeof word, &word, sizeof word);
  }
}

/// dst may be one of srcs.
inline void reference_reduce(void* dst, std::span<const void* const> srcs, size_t count,
                             DataType type, RedOp op, uint32_t divisor) {
  const auto fold = [&]<typename Word, typename Sum>(Word, Sum) {
    reference_fold<Word, Sum>(
        dst, srcs, count, op, divisor, [](Word word) { return static_cast<Sum>(word); },
        [](Sum sum) { return static_cast<Word>(sum); });
  };
  const auto fold_small = [&](const SmallFloat& kind) {
    reference_fold<uint16_t, float>(
        dst, srcs, count, op, divisor, [&](uint16_t word) { return kind.decode(word); },
        [&](float sum) { return kind.encode(sum); });
  };
  switch (type) {
    case DataType::Int8:
      return fold(int8_t{}, int32_t{});
    case DataType::Uint8:
      return fold(uint8_t{}, uint32_t{});
    case DataType::Int16:
      return fold(int16_t{}, int32_t{});
    case DataType::Uint16:
      return fold(uint16_t{}, uint32_t{});
    case DataType::Int32:
      return fold(int32_t{}, int32_t{});
    case DataType::Uint32:
      return fold(uint32_t{}, uint32_t{});
    case DataType::Int64:
      return fold(int64_t{}, int64_t{});
    case DataType::Uint64:
      return fold(uint64_t{}, uint64_t{});
    case DataType::Float32:
      return fold(float{}, float{});
    case DataType::Float64:
      return fold(double{}, double{});
    case DataType::Float16:
      return fold_small(kHalf);
    case DataType::BFloat16:
      return fold_small(kBFloat);
  }
}

/// Random elements: for floats mostly of ordinary size, now and then any bit pattern (denormals,
/// infinities and NaNs among them); for integers any.
inline std::vector<std::byte> random_elements(std::mt19937_64& random, DataType type,
                                              size_t count) {
  std::vector<std::byte> bytes(count * size_of(type));
  const bool is_float = type == DataType::Float16 || type == DataType::BFloat16 ||
                        type == DataType::Float32 || type == DataType::Float64;
  for (size_t i = 0; i < count; ++i) {
    uint64_t word = random();
    const float ordinary = static_cast<float>(word >> 40) / 0x1p22F - 2.0F;
    if (is_float && word % 16 != 0) {
      if (type == DataType::Float16) word = kHalf.encode(ordinary);
      if (type == DataType::BFloat16) word = kBFloat.encode(ordinary);
      if (type == DataType::Float32) word = std::bit_cast<uint32_t>(ordinary);
      if (type == DataType::Float64) word = std::bit_cast<uint64_t>(double{ordinary} / 3);
    }
    std::memcpy(bytes.data() + i * size_of(type), &word, size_of(type));
  }
  return bytes;
}

}  // namespace hetccl::fake
