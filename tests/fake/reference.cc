#include "fake/reference.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace hetccl::fake {

namespace {

template <typename T>
T combine(RedOp op, T a, T b) {
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
    if (op == RedOp::Band) return static_cast<T>(x & y);
    if (op == RedOp::Bor) return static_cast<T>(x | y);
    if (op == RedOp::Bxor) return static_cast<T>(x ^ y);
    return static_cast<T>(op == RedOp::Prod ? x * y : x + y);
  }
}

// `Sum` accumulates, `load` and `store` convert. `factors`: of the sources, for PreMulSum.
template <typename Word, typename Sum, typename Load, typename Store>
void reference_fold(void* dst, std::span<const void* const> srcs, size_t count, RedOp op,
                    Divisor divisor, const Factor* factors, Load load, Store store) {
  Word word;
  const auto read = [&](const void* from) {
    std::memcpy(&word, from, sizeof word);
    return load(word);
  };
  for (size_t i = 0; i < count; ++i) {
    Sum sum{};
    for (size_t s = 0; s < srcs.size(); ++s) {
      Sum next = read(static_cast<const std::byte*>(srcs[s]) + i * sizeof word);
      if (op == RedOp::PreMulSum) next = combine<Sum>(RedOp::Prod, next, read(factors[s].element));
      if constexpr (std::is_floating_point_v<Sum>)
        if (op == RedOp::Avg) next = next * static_cast<Sum>(divisor.down());
      sum = s == 0 ? next : combine<Sum>(op, sum, next);
    }
    if (op == RedOp::Avg) {
      if constexpr (std::is_floating_point_v<Sum>)
        sum = sum / static_cast<Sum>(divisor.quotient());
      else if constexpr (std::is_signed_v<Sum>)
        sum = static_cast<Sum>(sum / static_cast<int64_t>(divisor.ranks));
      else
        sum = static_cast<Sum>(sum / divisor.ranks);
    }
    if constexpr (std::is_floating_point_v<Sum>)
      if (std::isnan(sum)) sum = std::numeric_limits<Sum>::quiet_NaN();
    word = store(sum);
    std::memcpy(static_cast<std::byte*>(dst) + i * sizeof word, &word, sizeof word);
  }
}

}  // namespace

std::vector<RedOp> ops_of(DataType type) {
  std::vector<RedOp> ops(std::begin(kOps), std::end(kOps));
  if (is_integer(type)) ops.insert(ops.end(), {RedOp::Band, RedOp::Bor, RedOp::Bxor});
  return ops;
}

double reference_combine(RedOp op, double a, double b) {
  return combine(op, a, b);
}

double SmallFloat::decode(int bits) const {
  const int magnitude = bits & ((1 << (width - 1)) - 1), exponent = magnitude >> fraction;
  const int mantissa = magnitude & ((1 << fraction) - 1);
  double value = magnitude > largest ? (magnitude == infinity() ? INFINITY : NAN)
                 : exponent == 0
                     ? std::ldexp(mantissa, least - fraction)
                     : std::ldexp(mantissa + (1 << fraction), exponent - 1 + least - fraction);
  return magnitude == bits ? value : -value;
}

int SmallFloat::encode(double value) const {
  if (std::isnan(value)) return nan;
  const int sign = std::signbit(value) ? 1 << (width - 1) : 0;
  const int top = width == 8 ? largest : infinity();
  if (std::isinf(value)) return sign | top;
  if (value == 0) return sign;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int e = std::max(exponent - 1, least);
  const double units = std::nearbyint(std::ldexp(std::fabs(value), fraction - e));
  const double bits = units + std::ldexp(e - least, fraction);
  return sign | (bits > top ? top : static_cast<int>(bits));
}

const SmallFloat* small_float(DataType type) {
  switch (type) {
    case DataType::Float16:
      return &kHalf;
    case DataType::BFloat16:
      return &kBFloat;
    case DataType::Float8E4m3:
      return &kE4m3;
    case DataType::Float8E5m2:
      return &kE5m2;
    default:
      return nullptr;
  }
}

Factor element_of(DataType type, double value) {
  Factor out;
  const auto put = [&](auto typed) { std::memcpy(out.element, &typed, sizeof typed); };
  const SmallFloat* kind = small_float(type);
  if (kind != nullptr && size_of(type) == 1)
    put(static_cast<uint8_t>(kind->encode(value)));
  else if (kind != nullptr)
    put(static_cast<uint16_t>(kind->encode(value)));
  else if (type == DataType::Float32)
    put(static_cast<float>(value));
  else if (type == DataType::Float64)
    put(value);
  else
    put(static_cast<int64_t>(value));  // the low bytes, which come first here
  return out;
}

void reference_reduce(void* dst, std::span<const void* const> srcs, size_t count, DataType type,
                      RedOp op, Divisor divisor, const Factor* factors) {
  const auto fold = [&]<typename Word, typename Sum>(Word, Sum) {
    reference_fold<Word, Sum>(
        dst, srcs, count, op, divisor, factors, [](Word word) { return static_cast<Sum>(word); },
        [](Sum sum) { return static_cast<Word>(sum); });
  };
  const auto fold_small = [&]<typename Word>(Word, const SmallFloat& kind) {
    reference_fold<Word, float>(
        dst, srcs, count, op, divisor, factors,
        [&](Word word) { return static_cast<float>(kind.decode(word)); },
        [&](float sum) { return static_cast<Word>(kind.encode(sum)); });
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
    case DataType::Float8E4m3:
    case DataType::Float8E5m2:
      return fold_small(uint8_t{}, *small_float(type));
    case DataType::Float16:
    case DataType::BFloat16:
      return fold_small(uint16_t{}, *small_float(type));
  }
}

std::vector<std::byte> random_elements(std::mt19937_64& random, DataType type, size_t count) {
  std::vector<std::byte> bytes(count * size_of(type));
  const bool is_float =
      small_float(type) != nullptr || type == DataType::Float32 || type == DataType::Float64;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = random();
    const float ordinary = static_cast<float>(word >> 40) / 0x1p22F - 2.0F;
    std::byte* out = bytes.data() + i * size_of(type);
    if (is_float && word % 16 != 0)
      std::memcpy(out, element_of(type, double{ordinary} / 3).element, size_of(type));
    else
      std::memcpy(out, &word, size_of(type));
  }
  return bytes;
}

void fill(void* data, size_t bytes, uint64_t seed) {
  auto* out = static_cast<std::byte*>(data);
  uint64_t state = seed * 2654435761 + 1;
  for (size_t i = 0; i < bytes; i += sizeof state) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(out + i, &state, std::min(sizeof state, bytes - i));
  }
}

bool equal(std::span<const std::byte> one, std::span<const std::byte> other) {
  if (one.size() != other.size()) return false;
  return one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0;
}

std::vector<Factor> random_factors(std::mt19937_64& random, DataType type, size_t n) {
  const std::vector<std::byte> elements = random_elements(random, type, n);
  std::vector<Factor> factors(n);
  for (size_t i = 0; i < n; ++i)
    std::memcpy(factors[i].element, elements.data() + i * size_of(type), size_of(type));
  return factors;
}

}  // namespace hetccl::fake
