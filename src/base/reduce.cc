#include "base/reduce.h"

#include <bit>
#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <cfenv>
#endif

// CMake compiles this file vectorised, with -ffp-contract=off. Each kernel exists twice on x86-64,
// for any processor and for AVX2; all that it calls is inlined into it, so that both are whole.
// They differ in speed, never in bits.
namespace hetccl {

namespace {

// How each type lies in memory (`Word`) and in what it accumulates (`Sum`).
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

// 8- and 16-bit integers whose sum must not wrap before it is divided.
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

// Conversions without branches, after Fabian Giesen's float_to_half_fast3_rtne.
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
    // Below 2^-14: adding 0.5 lets the adder round at a half's last denormal bit.
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    const uint32_t normal = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
    uint32_t half = magnitude < 0x38800000U ? small : normal;
    half = magnitude >= 0x477ff000U ? 0x7c00U : half;
    half |= (bits >> 16) & 0x8000U;
    return static_cast<Word>(magnitude > 0x7f800000U ? 0x7e00U : half);
  }
};

// Integers are added and multiplied unsigned, where wrapping is defined (and 16-bit ones after
// promotion to 32 bits, where the product of two would overflow int).
template <typename T>
using Wrapping = std::conditional_t<
    std::floating_point<T>, T,
    std::conditional_t<sizeof(T) < 4, uint32_t,
                       std::make_unsigned_t<std::conditional_t<std::floating_point<T>, int, T>>>>;

template <RedOp op, typename T>
[[gnu::always_inline]] inline T combine(T a, T b) {
  using W = Wrapping<T>;
  if constexpr (op == RedOp::Prod)
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  else if constexpr (op == RedOp::Max)
    return a > b || a != a ? a : b;
  else if constexpr (op == RedOp::Min)
    return a < b || a != a ? a : b;
  else
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
}

template <RedOp op, typename T>
[[gnu::always_inline]] inline T finish(T sum, uint32_t divisor) {
  if constexpr (op != RedOp::Avg)
    return sum;
  else if constexpr (std::floating_point<T>)
    return sum / static_cast<T>(divisor);
  else if constexpr (std::is_signed_v<T>)
    return static_cast<T>(static_cast<int64_t>(sum) / static_cast<int64_t>(divisor));
  else
    return static_cast<T>(sum / divisor);
}

struct Call {
  void* dst;
  const void* const* srcs;
  int n_srcs;
  size_t count;
  uint32_t divisor;
};

// `ivdep`: dst may be one of the sources, element by element, so no iteration feeds another.
template <typename Type, RedOp op>
[[gnu::always_inline]] inline void two_sources(const Call& call) {
  using Word = typename Type::Word;
  auto* dst = static_cast<Word*>(call.dst);
  const auto* a = static_cast<const Word*>(call.srcs[0]);
  const auto* b = static_cast<const Word*>(call.srcs[1]);
  const size_t count = call.count;
  const uint32_t divisor = call.divisor;
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i)
    dst[i] = Type::store(finish<op>(combine<op>(Type::load(a[i]), Type::load(b[i])), divisor));
}

// Blocks that stay in the first-level cache, since a partial sum is wider than its element.
template <typename Type, RedOp op>
[[gnu::always_inline]] inline void many_sources(const Call& call) {
  using Word = typename Type::Word;
  using Sum = typename Type::Sum;
  constexpr size_t kBlock = 1024;
  alignas(64) Sum sums[kBlock];
  for (size_t done = 0; done < call.count; done += kBlock) {
    const size_t n = call.count - done < kBlock ? call.count - done : kBlock;
    const auto* first = static_cast<const Word*>(call.srcs[0]) + done;
#pragma GCC ivdep
    for (size_t i = 0; i < n; ++i) sums[i] = Type::load(first[i]);
    for (int s = 1; s < call.n_srcs; ++s) {
      const auto* src = static_cast<const Word*>(call.srcs[s]) + done;
#pragma GCC ivdep
      for (size_t i = 0; i < n; ++i) sums[i] = combine<op>(sums[i], Type::load(src[i]));
    }
    auto* dst = static_cast<Word*>(call.dst) + done;
#pragma GCC ivdep
    for (size_t i = 0; i < n; ++i) dst[i] = Type::store(finish<op>(sums[i], call.divisor));
  }
}

template <typename Type, RedOp op>
[[gnu::always_inline]] inline void kernel(const Call& call) {
  if (call.n_srcs == 2)
    two_sources<Type, op>(call);
  else
    many_sources<Type, op>(call);
}

template <typename Type, RedOp op>
void run_portable(const Call& call) {
  kernel<Type, op>(call);
}

#if defined(__x86_64__)

template <typename Type, RedOp op>
[[gnu::target("avx2")]] void run_avx2(const Call& call) {
  kernel<Type, op>(call);
}

using Floats = float __attribute__((vector_size(32)));

template <RedOp op>
[[gnu::always_inline, gnu::target("avx2,f16c")]] inline Floats combine8(Floats a, Floats b) {
  if constexpr (op == RedOp::Prod)
    return a * b;
  else if constexpr (op == RedOp::Max)
    return (a > b) | (a != a) ? a : b;
  else if constexpr (op == RedOp::Min)
    return (a < b) | (a != a) ? a : b;
  else
    return a + b;
}

// The processor's own fp16 conversions, which compilers do not vectorise; the rest of fewer than
// eight elements goes through Half.
template <RedOp op>
[[gnu::target("avx2,f16c")]] void run_f16c(const Call& call) {
  const auto load8 = [&](int s, size_t i) __attribute__((always_inline, target("avx2,f16c"))) {
    const auto* words = static_cast<const uint16_t*>(call.srcs[s]) + i;
    return Floats(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(words))));
  };
  const size_t whole = call.count / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    Floats sum = load8(0, i);
    for (int s = 1; s < call.n_srcs; ++s) sum = combine8<op>(sum, load8(s, i));
    if constexpr (op == RedOp::Avg) sum /= static_cast<float>(call.divisor);
    sum = sum != sum ? Floats{} + std::numeric_limits<float>::quiet_NaN() : sum;
    const __m128i words = _mm256_cvtps_ph(__m256(sum), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(static_cast<uint16_t*>(call.dst) + i), words);
  }
  for (size_t i = whole; i < call.count; ++i) {
    const auto word = [&](int s) { return static_cast<const uint16_t*>(call.srcs[s])[i]; };
    float sum = Half::load(word(0));
    for (int s = 1; s < call.n_srcs; ++s) sum = combine<op>(sum, Half::load(word(s)));
    static_cast<uint16_t*>(call.dst)[i] = Half::store(finish<op>(sum, call.divisor));
  }
}

template <typename Type, RedOp op>
void run(const Call& call) {
  const bool avx2 = __builtin_cpu_supports("avx2");
  if constexpr (std::is_same_v<Type, Half>)
    if (avx2 && __builtin_cpu_supports("f16c")) return run_f16c<op>(call);
  if (avx2)
    run_avx2<Type, op>(call);
  else
    run_portable<Type, op>(call);
}

// The calling thread belongs to an application that may have switched to flush-to-zero or to
// another rounding: kernels run in the default mode.
class DefaultFloatMode {
 public:
  DefaultFloatMode() : saved_(_mm_getcsr()) {
    if ((saved_ & kModes) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFloatMode() {
    if ((saved_ & kModes) != kDefault) _mm_setcsr(saved_);
  }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  static constexpr unsigned kDefault = 0x1f80;
  static constexpr unsigned kModes = 0xffc0;  // all but the sticky exception flags
  unsigned saved_;
};

#else

template <typename Type, RedOp op>
void run(const Call& call) {
  run_portable<Type, op>(call);
}

class DefaultFloatMode {
 public:
  DefaultFloatMode() {
    fegetenv(&saved_);
    fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatMode() { fesetenv(&saved_); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  fenv_t saved_;
};

#endif

template <typename Type, typename AvgType = Type>
void run_op(RedOp op, const Call& call) {
  switch (op) {
    case RedOp::Sum:
      return run<Type, RedOp::Sum>(call);
    case RedOp::Prod:
      return run<Type, RedOp::Prod>(call);
    case RedOp::Max:
      return run<Type, RedOp::Max>(call);
    case RedOp::Min:
      return run<Type, RedOp::Min>(call);
    case RedOp::Avg:
      return run<AvgType, RedOp::Avg>(call);
  }
}

}  // namespace

// Narrow integers keep their width where wrapping early gives the same result: all but Avg.
void reduce(void* dst, const void* const* srcs, int n_srcs, size_t count, DataType type, RedOp op,
            uint32_t divisor) {
  const Call call{dst, srcs, n_srcs, count, divisor};
  const DefaultFloatMode mode;
  switch (type) {
    case DataType::Int8:
      return run_op<Plain<int8_t>, Widened<int8_t, int32_t>>(op, call);
    case DataType::Uint8:
      return run_op<Plain<uint8_t>, Widened<uint8_t, uint32_t>>(op, call);
    case DataType::Int16:
      return run_op<Plain<int16_t>, Widened<int16_t, int32_t>>(op, call);
    case DataType::Uint16:
      return run_op<Plain<uint16_t>, Widened<uint16_t, uint32_t>>(op, call);
    case DataType::Int32:
      return run_op<Plain<int32_t>>(op, call);
    case DataType::Uint32:
      return run_op<Plain<uint32_t>>(op, call);
    case DataType::Int64:
      return run_op<Plain<int64_t>>(op, call);
    case DataType::Uint64:
      return run_op<Plain<uint64_t>>(op, call);
    case DataType::Float16:
      return run_op<Half>(op, call);
    case DataType::BFloat16:
      return run_op<BFloat>(op, call);
    case DataType::Float32:
      return run_op<Plain<float>>(op, call);
    case DataType::Float64:
      return run_op<Plain<double>>(op, call);
  }
}

}  // namespace hetccl
