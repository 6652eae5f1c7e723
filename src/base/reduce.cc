#include "base/reduce.h"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "base/element.h"
#include "base/encoding.h"
#include "base/float_mode.h"

#if defined(__x86_64__)
#include "base/element_f16c.h"
#endif

// CMake compiles this file vectorised, with -ffp-contract=off. On x86-64 each kernel exists twice,
// for any processor and for AVX2; everything it calls is inlined, so that no code is shared. They
// differ in speed, never in bits.
namespace hetccl {

namespace {

using namespace element;

// Adds and multiplies integers as unsigned, for which wrapping is defined (16-bit ones after
// promotion to 32 bits, because the product of two would overflow int).
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
  else if constexpr (op == RedOp::Band)
    return static_cast<T>(a & b);
  else if constexpr (op == RedOp::Bor)
    return static_cast<T>(a | b);
  else if constexpr (op == RedOp::Bxor)
    return static_cast<T>(a ^ b);
  else
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
}

// Divides for an average. For integers up to 32 bits, multiplying by the inverse in double
// precision gives exact quotients: the added half is more than the rounding errors, and less than
// the distance to the next integer.
struct Division {
  explicit Division(Divisor by)
      : value(by.ranks), inverse(1.0 / by.ranks), down(by.down()), quotient(by.quotient()) {}
  uint32_t value;
  double inverse;
  double down, quotient;  // for floats
};

[[gnu::always_inline]] inline int32_t divide(int32_t sum, const Division& by) {
  return static_cast<int32_t>((sum + (sum < 0 ? -0.5 : 0.5)) * by.inverse);
}

// Uses int32_t, which processors convert in one instruction.
[[gnu::always_inline]] inline uint32_t divide(uint32_t sum, const Division& by) {
  const double wide = static_cast<int32_t>(sum ^ 0x80000000U) + (0x1p31 + 0.5);
  const auto quotient = static_cast<int32_t>(by.value == 1 ? 0 : wide * by.inverse);
  return by.value == 1 ? sum : static_cast<uint32_t>(quotient);
}

[[gnu::always_inline]] inline int64_t divide(int64_t sum, const Division& by) {
  return sum / static_cast<int64_t>(by.value);
}

[[gnu::always_inline]] inline uint64_t divide(uint64_t sum, const Division& by) {
  return sum / by.value;
}

template <RedOp op, typename T>
[[gnu::always_inline]] inline T finish(T sum, const Division& division) {
  if constexpr (op != RedOp::Avg)
    return sum;
  else if constexpr (std::floating_point<T>)
    return sum / static_cast<T>(division.quotient);
  else
    return divide(sum, division);
}

struct Operands {
  void* dst;
  const void* const* srcs;
  int n_srcs;
  size_t count;
  Division division;
  const Factor* factors;  // of each source: PreMulSum
};

// Returns the factor of source `s`.
template <typename Type, RedOp op>
[[gnu::always_inline]] inline typename Type::Sum factor_of(const Operands& operands, int s) {
  typename Type::Word word{};
  if constexpr (op == RedOp::PreMulSum)
    std::memcpy(&word, operands.factors[s].element, sizeof word);
  if constexpr (op == RedOp::Avg && std::floating_point<typename Type::Sum>)
    return static_cast<typename Type::Sum>(operands.division.down);
  return Type::load(word);
}

template <typename Type, RedOp op>
[[gnu::always_inline]] inline typename Type::Sum load(typename Type::Word word,
                                                      typename Type::Sum factor) {
  constexpr bool kScales = op == RedOp::Avg && std::floating_point<typename Type::Sum>;
  if constexpr (op == RedOp::PreMulSum || kScales)
    return combine<RedOp::Prod>(Type::load(word), factor);
  else
    return Type::load(word);
}

// `ivdep`: dst may be one of the sources, but only element by element, so iterations are
// independent.
template <typename Type, RedOp op>
[[gnu::always_inline]] inline void two_sources(const Operands& operands) {
  using Word = typename Type::Word;
  auto* dst = static_cast<Word*>(operands.dst);
  const auto* a = static_cast<const Word*>(operands.srcs[0]);
  const auto* b = static_cast<const Word*>(operands.srcs[1]);
  const size_t count = operands.count;
  const Division division = operands.division;
  const auto factor_a = factor_of<Type, op>(operands, 0);
  const auto factor_b = factor_of<Type, op>(operands, 1);
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    const auto sum = combine<op>(load<Type, op>(a[i], factor_a), load<Type, op>(b[i], factor_b));
    dst[i] = Type::store(finish<op>(sum, division));
  }
}

// Works in blocks that fit into the first-level cache, because partial sums are wider than
// elements.
template <typename Type, RedOp op>
[[gnu::always_inline]] inline void many_sources(const Operands& operands) {
  using Word = typename Type::Word;
  using Sum = typename Type::Sum;
  constexpr size_t kBlock = 1024;
  alignas(64) Sum sums[kBlock];
  const Division division = operands.division;
  for (size_t done = 0; done < operands.count; done += kBlock) {
    const size_t n = operands.count - done < kBlock ? operands.count - done : kBlock;
    const auto* first = static_cast<const Word*>(operands.srcs[0]) + done;
    const Sum first_factor = factor_of<Type, op>(operands, 0);
#pragma GCC ivdep
    for (size_t i = 0; i < n; ++i) sums[i] = load<Type, op>(first[i], first_factor);
    for (int s = 1; s < operands.n_srcs; ++s) {
      const auto* src = static_cast<const Word*>(operands.srcs[s]) + done;
      const Sum factor = factor_of<Type, op>(operands, s);
#pragma GCC ivdep
      for (size_t i = 0; i < n; ++i) sums[i] = combine<op>(sums[i], load<Type, op>(src[i], factor));
    }
    auto* dst = static_cast<Word*>(operands.dst) + done;
#pragma GCC ivdep
    for (size_t i = 0; i < n; ++i) dst[i] = Type::store(finish<op>(sums[i], division));
  }
}

template <typename Type, RedOp op>
[[gnu::always_inline]] inline void kernel(const Operands& operands) {
  if (operands.n_srcs == 2)
    two_sources<Type, op>(operands);
  else
    many_sources<Type, op>(operands);
}

template <typename Type, RedOp op>
void run_portable(const Operands& operands) {
  kernel<Type, op>(operands);
}

#if defined(__x86_64__)

template <typename Type, RedOp op>
[[gnu::target("avx2")]] void run_avx2(const Operands& operands) {
  kernel<Type, op>(operands);
}

template <RedOp op>
[[HETCCL_F16C]] inline Floats combine8(Floats a, Floats b) {
  if constexpr (op == RedOp::Prod)
    return a * b;
  else if constexpr (op == RedOp::Max)
    return (a > b) | (a != a) ? a : b;
  else if constexpr (op == RedOp::Min)
    return (a < b) | (a != a) ? a : b;
  else
    return a + b;
}

// Computes fewer than eight remaining elements one by one.
template <typename Type, RedOp op>
[[gnu::target("avx2,f16c")]] void run_f16c(const Operands& operands) {
  using Word = typename Type::Word;
  const auto load8 = [&](int s, size_t i) __attribute__((always_inline, target("avx2,f16c"))) {
    const auto* words = static_cast<const Word*>(operands.srcs[s]) + i;
    const Floats loaded = Eight<Type>::load(Eight<Type>::read(words));
    if constexpr (op != RedOp::PreMulSum && op != RedOp::Avg) return loaded;
    return loaded * factor_of<Type, op>(operands, s);
  };
  auto* dst = static_cast<Word*>(operands.dst);
  const size_t whole = operands.count / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    Floats sum = load8(0, i);
    for (int s = 1; s < operands.n_srcs; ++s) sum = combine8<op>(sum, load8(s, i));
    if constexpr (op == RedOp::Avg) sum /= static_cast<float>(operands.division.quotient);
    Eight<Type>::store(dst + i, sum);
  }
  for (size_t i = whole; i < operands.count; ++i) {
    const auto load1 = [&](int s) {
      return load<Type, op>(static_cast<const Word*>(operands.srcs[s])[i],
                            factor_of<Type, op>(operands, s));
    };
    float sum = load1(0);
    for (int s = 1; s < operands.n_srcs; ++s) sum = combine<op>(sum, load1(s));
    dst[i] = Type::store(finish<op>(sum, operands.division));
  }
}

template <typename Type, RedOp op>
void run(const Operands& operands) {
  const bool avx2 = __builtin_cpu_supports("avx2");
  if constexpr (kHasEight<Type>)
    if (has_f16c()) return run_f16c<Type, op>(operands);
  if (avx2)
    run_avx2<Type, op>(operands);
  else
    run_portable<Type, op>(operands);
}

#else

template <typename Type, RedOp op>
void run(const Operands& operands) {
  run_portable<Type, op>(operands);
}

#endif

template <typename Type>
void run_bitwise(RedOp op, const Operands& operands) {
  if constexpr (std::integral<typename Type::Sum>) {
    if (op == RedOp::Band) return run<Type, RedOp::Band>(operands);
    if (op == RedOp::Bor) return run<Type, RedOp::Bor>(operands);
    return run<Type, RedOp::Bxor>(operands);
  }
}

template <typename Type, typename AvgType = Type>
void run_op(RedOp op, const Operands& operands) {
  switch (op) {
    case RedOp::Sum:
      return run<Type, RedOp::Sum>(operands);
    case RedOp::Prod:
      return run<Type, RedOp::Prod>(operands);
    case RedOp::Max:
      return run<Type, RedOp::Max>(operands);
    case RedOp::Min:
      return run<Type, RedOp::Min>(operands);
    case RedOp::Avg:
      return run<AvgType, RedOp::Avg>(operands);
    case RedOp::PreMulSum:
      return run<Type, RedOp::PreMulSum>(operands);
    case RedOp::Band:
    case RedOp::Bor:
    case RedOp::Bxor:
      return run_bitwise<Type>(op, operands);
  }
}

}  // namespace

Status validate(const Reduction& reduction) {
  if (reduction.n_srcs < 1 || reduction.n_srcs > Reduction::kMaxSources)
    return error(ErrorCode::InvalidArgument, "a reduction of %d sources: 1 to %d are possible",
                 reduction.n_srcs, Reduction::kMaxSources);
  if (!is_valid(reduction.type) || !is_valid(reduction.op))
    return error(ErrorCode::InvalidArgument,
                 "a reduction of data type %d with operator %d is unknown",
                 static_cast<int>(reduction.type), static_cast<int>(reduction.op));
  if (!applies(reduction.op, reduction.type))
    return error(ErrorCode::InvalidArgument, "%s has no operator %s",
                 std::string(name_of(reduction.type)).c_str(),
                 std::string(name_of(reduction.op)).c_str());
  if (reduction.encoded != 0 && (reduction.encoding.is_none() || !has_encoding(reduction.type) ||
                                 (reduction.op != RedOp::Sum && reduction.op != RedOp::Avg)))
    return error(
        ErrorCode::InvalidArgument, "a reduction of encoded %s by %s: sums of floats alone are",
        std::string(name_of(reduction.type)).c_str(), std::string(name_of(reduction.op)).c_str());
  if (reduction.residual != nullptr && !reduction.result_is_encoded())
    return error(ErrorCode::InvalidArgument, "a residual is of encoded results alone");
  if (reduction.op == RedOp::Avg && reduction.divisor.ranks == 0)
    return error(ErrorCode::InvalidArgument, "an average needs a divisor that is not 0");
  return {};
}

namespace {

// Narrow integers keep their width if wrapping early gives the same result: for all operators but
// Avg.
void run_type(DataType type, RedOp op, const Operands& operands) {
  switch (type) {
    case DataType::Int8:
      return run_op<Plain<int8_t>, Widened<int8_t, int32_t>>(op, operands);
    case DataType::Uint8:
      return run_op<Plain<uint8_t>, Widened<uint8_t, uint32_t>>(op, operands);
    case DataType::Int16:
      return run_op<Plain<int16_t>, Widened<int16_t, int32_t>>(op, operands);
    case DataType::Uint16:
      return run_op<Plain<uint16_t>, Widened<uint16_t, uint32_t>>(op, operands);
    case DataType::Int32:
      return run_op<Plain<int32_t>>(op, operands);
    case DataType::Uint32:
      return run_op<Plain<uint32_t>>(op, operands);
    case DataType::Int64:
      return run_op<Plain<int64_t>>(op, operands);
    case DataType::Uint64:
      return run_op<Plain<uint64_t>>(op, operands);
    case DataType::Float16:
      return run_op<Half>(op, operands);
    case DataType::BFloat16:
      return run_op<BFloat>(op, operands);
    case DataType::Float8E4m3:
      return run_op<E4m3>(op, operands);
    case DataType::Float8E5m2:
      return run_op<E5m2>(op, operands);
    case DataType::Float32:
      return run_op<Plain<float>>(op, operands);
    case DataType::Float64:
      return run_op<Plain<double>>(op, operands);
  }
}

// Computes each piece in the nearest cache and copies it from there.
void run_past_caches(DataType type, RedOp op, const Operands& whole) {
  constexpr size_t kPiece = 8192;
  alignas(64) std::byte result[kPiece];
  const void* srcs[Reduction::kMaxSources];
  const size_t element = size_of(type);
  for (size_t done = 0; done < whole.count;) {
    const size_t count = std::min(whole.count - done, kPiece / element);
    for (int s = 0; s < whole.n_srcs; ++s)
      srcs[s] = static_cast<const std::byte*>(whole.srcs[s]) + done * element;
    run_type(type, op, {result, srcs, whole.n_srcs, count, whole.division, whole.factors});
    copy_past_caches(static_cast<std::byte*>(whole.dst) + done * element, result, count * element);
    done += count;
  }
}

}  // namespace

void reduce(void* dst, const void* const* srcs, int n_srcs, size_t count, DataType type, RedOp op,
            Divisor divisor, const Factor* factors, Caching caching) {
  const DefaultFloatMode mode;
  const Operands operands{dst, srcs, n_srcs, count, Division(divisor), factors};
  const bool bypass = caching == Caching::Bypass && n_srcs <= Reduction::kMaxSources;
  return bypass ? run_past_caches(type, op, operands) : run_type(type, op, operands);
}

void reduce(const Reduction& r) {
  if (r.encoded != 0) return reduce_encoded(r, 0, r.count);
  Factor factors[Reduction::kMaxSources];
  std::fill_n(factors, r.n_srcs, r.factor);
  reduce(r.dst, r.srcs, r.n_srcs, r.count, r.type, r.op, r.divisor, factors, r.caching);
}

}  // namespace hetccl
