// Reductions of host memory, used by every host device, host cluster and reference test. Device
// kernels are twins of this code: for the same sources they give the same bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/copy.h"
#include "base/status.h"
#include "base/types.h"

namespace hetccl {

/// The divisor of an average. Integers are summed, and the sum is divided by `ranks`. A sum of
/// floats could overflow though their mean does not, so each is first multiplied by `down`, a power
/// of two of at most 1 / ranks, which is exact unless it makes a denormal. Then the sum is divided
/// by `quotient`, which is above 1/2 and at most 1.
struct Divisor {
  constexpr Divisor(uint32_t n, bool is_scaled = false) : ranks(n), scaled(is_scaled) {}
  uint32_t ranks;
  bool scaled;  ///< floats are already multiplied: down is 1
  [[nodiscard]] constexpr uint64_t power() const { return std::bit_ceil(uint64_t{ranks}); }
  [[nodiscard]] constexpr double down() const {
    return scaled ? 1 : 1 / static_cast<double>(power());
  }
  [[nodiscard]] constexpr double quotient() const {
    return static_cast<double>(ranks) / static_cast<double>(power());
  }
};

/// dst[i] = srcs[0][i] op srcs[1][i] op ..., evaluated left to right; for RedOp::Avg the sum is
/// divided as Divisor says, for RedOp::PreMulSum each source is multiplied by `factor`
/// first (other operators ignore them). `dst` may be one of `srcs`; ranges that overlap otherwise
/// are not allowed.
///
/// Floats: fp32 and fp64 accumulate in their own precision, fp8, fp16 and bf16 in fp32 with one
/// rounding to nearest even at the end; nothing is flushed to zero, products and sums are not
/// fused, a NaN is the canonical quiet one (0x7f, 0x7e00, 0x7fc0, 0x7fc00000, 0x7ff8...0). Max and
/// Min are `a > b || a is NaN ? a : b` and its mirror, so they propagate NaN.
/// fp8 saturates, as on CUDA and so in NCCL's kernels: a result beyond the largest finite (448 of
/// e4m3, 57344 of e5m2), e5m2's infinities included, becomes the largest finite of its sign; a NaN
/// stays one.
/// Encoded operands (base/encoding.h) are of floats alone, and of sums and averages.
/// Integers wrap, and they alone have the bitwise operators; Avg of 8- and 16-bit integers sums in
/// 32 bits, and Avg truncates toward zero.
struct Reduction {
  static constexpr int kMaxSources = 16;
  void* dst = nullptr;
  const void* srcs[kMaxSources] = {};
  int n_srcs = 0;
  size_t count = 0;
  DataType type{};
  RedOp op{};
  Divisor divisor = 1;
  Factor factor{};
  Caching caching = Caching::Keep;  ///< of the result; only on hosts
  uint16_t blocks = 0;              ///< maximum of a GPU kernel; 0: the device's setting
  uint16_t threads = 0;             ///< maximum of a host; 0: all that it has
  Encoding encoding{};              ///< of the operands in `encoded`
  uint32_t encoded = 0;             ///< bit s: source s is encoded; bit kMaxSources: the result is
  uint32_t salt = 0;                ///< for stochastic codes, with first_element
  uint64_t first_element = 0;       ///< number of the first element, for stochastic codes
  void* residual = nullptr;         ///< of an encoded result; null: none. See reduce_encoded
  [[nodiscard]] bool is_encoded(int source) const { return (encoded >> source & 1U) != 0; }
  [[nodiscard]] bool result_is_encoded() const { return is_encoded(kMaxSources); }
};

/// Returns InvalidArgument if `reduction` has no sources or too many, a bad type or operator, an
/// operator that its type lacks, or a divisor of 0.
[[nodiscard]] Status validate(const Reduction& reduction);

/// Computes a reduction of any number (>= 1) of sources in host memory with individual factors: for
/// PreMulSum, `factors` has one per source. Type and operator must be valid, the divisor not 0.
/// Gives the same bits on every processor, whatever the thread's floating-point mode. Bypasses the
/// caches if asked to, and if there are at most Reduction::kMaxSources sources.
void reduce(void* dst, const void* const* srcs, int n_srcs, size_t count, DataType type, RedOp op,
            Divisor divisor, const Factor* factors, Caching caching = Caching::Keep);
/// Computes a reduction of at most Reduction::kMaxSources sources.
void reduce(const Reduction& reduction);

/// Returns the neutral element: x op identity == x for all x, bit for bit, in either order. For Avg
/// and PreMulSum, the sum's.
[[nodiscard]] Factor identity_of(DataType type, RedOp op);

/// Returns whether 1 / `Divisor::power` is a float of that type; false for integers.
[[nodiscard]] bool has_down(DataType type, Divisor divisor);
/// Returns that float as the factor of a PreMulSum. Requires `has_down`.
[[nodiscard]] Factor down_of(DataType type, Divisor divisor);

}  // namespace hetccl
