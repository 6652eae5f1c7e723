// element.h's conversions of fp16 and fp8, eight at a time, by the fp16 instructions of x86-64
// processors (F16C), which compilers do not vectorise to. Gives the same bits.
#pragma once

#include <cpuid.h>
#include <immintrin.h>

#include <limits>

#include "base/element.h"

#define HETCCL_F16C gnu::always_inline, gnu::target("avx2,f16c")

namespace hetccl::element {

using Floats = float __attribute__((vector_size(32)));

/// `read` loads eight elements into 16-bit lanes, `load` converts them to floats.
template <typename Type>
struct Eight;

template <>
struct Eight<Half> {
  [[HETCCL_F16C]] static __m128i read(const uint16_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  [[HETCCL_F16C]] static Floats load(__m128i lanes) { return Floats(_mm256_cvtph_ps(lanes)); }
  [[HETCCL_F16C]] static void store(uint16_t* to, Floats sums) {
    sums = sums != sums ? Floats{} + std::numeric_limits<float>::quiet_NaN() : sums;
    const __m128i halves = _mm256_cvtps_ph(__m256(sums), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  }
};

/// fp8 is the upper part of an fp16 (with another exponent, if the bias is smaller), so loading is
/// exact. To store, fp16 truncates and sets its last bit if that lost anything, so that the second
/// rounding is right.
template <int kFraction, int kBias, uint32_t kLargest, bool kHasInfinity>
struct Eight<Float8<kFraction, kBias, kLargest, kHasInfinity>> {
  [[HETCCL_F16C]] static __m128i read(const uint8_t* from) {
    return _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }

  [[HETCCL_F16C]] static Floats load(__m128i lanes) {
    const __m128i magnitude = _mm_and_si128(lanes, all(0x7f));
    const __m128i sign = _mm_slli_epi16(_mm_and_si128(lanes, all(0x80)), 8);
    __m128i halves = _mm_or_si128(_mm_slli_epi16(magnitude, kShift), sign);
    if constexpr (!kHasInfinity) {
      const __m128i nan = _mm_cmpgt_epi16(magnitude, all(kLargest));
      halves = _mm_or_si128(halves, _mm_and_si128(nan, all(0x7c00)));
    }
    return Floats(_mm256_cvtph_ps(halves)) * kScale;
  }

  [[HETCCL_F16C]] static void store(uint8_t* to, Floats sums) {
    const Floats scaled = sums * (1 / kScale);
    const __m128i cut = _mm256_cvtps_ph(__m256(scaled), _MM_FROUND_TO_ZERO);
    const auto lost = __m256i(Floats(_mm256_cvtph_ps(cut)) != scaled);
    const __m128i lost_lanes =
        _mm_packs_epi32(_mm256_castsi256_si128(lost), _mm256_extracti128_si256(lost, 1));
    const __m128i halves = _mm_or_si128(cut, _mm_and_si128(lost_lanes, all(1)));

    const __m128i magnitude = _mm_and_si128(halves, all(0x7fff));
    const __m128i last = _mm_and_si128(_mm_srli_epi16(magnitude, kShift), all(1));
    const __m128i up = _mm_add_epi16(all((1 << (kShift - 1)) - 1), last);
    const __m128i rounded = _mm_srli_epi16(_mm_add_epi16(magnitude, up), kShift);
    const __m128i sign = _mm_and_si128(_mm_srli_epi16(halves, 8), all(0x80));
    const __m128i finite = _mm_or_si128(_mm_min_epi16(rounded, all(kLargest)), sign);
    const __m128i nan = _mm_cmpgt_epi16(magnitude, all(0x7c00));
    const __m128i codes = _mm_blendv_epi8(finite, all(0x7f), nan);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(codes, codes));
  }

 private:
  static constexpr int kShift = 10 - kFraction;
  static constexpr auto kScale = static_cast<float>(1 << (15 - kBias));
  [[HETCCL_F16C]] static __m128i all(int lane) { return _mm_set1_epi16(static_cast<short>(lane)); }
};

template <typename Type>
constexpr bool kHasEight = requires { sizeof(Eight<Type>); };

/// Returns whether this processor has AVX2 and F16C. Clang 14's __builtin_cpu_supports lacks f16c.
/// Queried once, because a virtual machine traps on it.
inline bool has_f16c() {
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
           (ecx & bit_F16C) != 0;
  }();
  return has;
}

}  // namespace hetccl::element
