// Expected results of reductions, computed one element at a time, and differently from the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/reduce.h"
#include "base/types.h"

namespace hetccl::fake {

inline constexpr DataType kTypes[] = {DataType::Int8,       DataType::Uint8,   DataType::Int16,
                                      DataType::Uint16,     DataType::Int32,   DataType::Uint32,
                                      DataType::Int64,      DataType::Uint64,  DataType::Float8E4m3,
                                      DataType::Float8E5m2, DataType::Float16, DataType::BFloat16,
                                      DataType::Float32,    DataType::Float64};
inline constexpr RedOp kOps[] = {RedOp::Sum, RedOp::Prod, RedOp::Max,
                                 RedOp::Min, RedOp::Avg,  RedOp::PreMulSum};
/// kOps, and of integers the bitwise ones.
std::vector<RedOp> ops_of(DataType type);

/// A float of `width` bits with `fraction` bits of mantissa and the least normal exponent `least`.
/// Codes up to `largest` are finite; the next is infinity, unless nothing but NaN (`nan`) is left.
/// 8-bit ones saturate.
struct SmallFloat {
  int width, fraction, least, largest, nan;

  [[nodiscard]] double decode(int bits) const;
  [[nodiscard]] int encode(double value) const;

 private:
  [[nodiscard]] int infinity() const {
    return largest + 1 < (1 << (width - 1)) - 1 ? largest + 1 : -1;
  }
};
inline constexpr SmallFloat kHalf{16, 10, -14, 0x7bff, 0x7e00},
    kBFloat{16, 7, -126, 0x7f7f, 0x7fc0}, kE4m3{8, 3, -6, 0x7e, 0x7f}, kE5m2{8, 2, -14, 0x7b, 0x7f};

/// The small float that `type` is, or null.
const SmallFloat* small_float(DataType type);
/// `value` as one element of `type`.
Factor element_of(DataType type, double value);
/// a op b, rounded once; NaN where either is.
double reference_combine(RedOp op, double a, double b);
/// dst may be one of srcs. `factors`: of the sources, for PreMulSum.
void reference_reduce(void* dst, std::span<const void* const> srcs, size_t count, DataType type,
                      RedOp op, Divisor divisor, const Factor* factors = nullptr);
/// Random elements: for floats mostly of ordinary size, now and then any bit pattern (denormals,
/// infinities and NaNs among them); for integers any.
std::vector<std::byte> random_elements(std::mt19937_64& random, DataType type, size_t count);
/// Fills `data` with pseudo-random bytes that `seed` decides, for messages that no rank reduces.
void fill(void* data, size_t bytes, uint64_t seed);
/// Whether both hold the same bytes. Spans and vectors of std::byte compare one at a time.
bool equal(std::span<const std::byte> one, std::span<const std::byte> other);
/// A random PreMulSum factor for each of `n` ranks.
std::vector<Factor> random_factors(std::mt19937_64& random, DataType type, size_t n);

}  // namespace hetccl::fake
