#include "base/encoding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <type_traits>

#include "base/divide.h"
#include "base/element.h"
#include "base/float_mode.h"

#if defined(__x86_64__)
#include "base/element_f16c.h"
#endif

// CMake compiles this file vectorised, with -ffp-contract=off. On x86-64 each loop exists twice,
// for any processor and for AVX2. They differ in speed, never in bits.
namespace hetccl {

namespace {

using namespace element;

constexpr size_t kMost = Encoding::kMostBlock;
constexpr std::array<std::string_view, 5> kNames = {"", "int8", "int4", "e4m3", "e5m2"};
constexpr std::string_view kStochastic = "stochastic";

// A block's elements in fp32.
struct Block {
  alignas(64) float at[kMost];
};

// Converts `n` words, which may be codes, to fp32 and back.
struct Conversion {
  void (*load)(float* to, const void* from, size_t n);
  void (*store)(void* to, const float* from, size_t n);
};

template <typename Type>
[[gnu::always_inline]] inline void load_all(float* to, const void* from, size_t n) {
  const auto* words = static_cast<const typename Type::Word*>(from);
  for (size_t i = 0; i < n; ++i) to[i] = Type::load(words[i]);
}

template <typename Type>
[[gnu::always_inline]] inline void store_all(void* to, const float* from, size_t n) {
  auto* words = static_cast<typename Type::Word*>(to);
  for (size_t i = 0; i < n; ++i) words[i] = Type::store(from[i]);
}

template <typename Type>
void load_portably(float* to, const void* from, size_t n) {
  load_all<Type>(to, from, n);
}
template <typename Type>
void store_portably(void* to, const float* from, size_t n) {
  store_all<Type>(to, from, n);
}

#if defined(__x86_64__)
template <typename Type>
[[gnu::target("avx2")]] void load_by_avx2(float* to, const void* from, size_t n) {
  load_all<Type>(to, from, n);
}
template <typename Type>
[[gnu::target("avx2")]] void store_by_avx2(void* to, const float* from, size_t n) {
  store_all<Type>(to, from, n);
}
// Converts fewer than eight remaining elements one by one.
template <typename Type>
[[gnu::target("avx2,f16c")]] void load_by_f16c(float* to, const void* from, size_t n) {
  const auto* words = static_cast<const typename Type::Word*>(from);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const Floats eight = Eight<Type>::load(Eight<Type>::read(words + i));
    std::memcpy(to + i, &eight, sizeof(eight));
  }
  for (; i < n; ++i) to[i] = Type::load(words[i]);
}
template <typename Type>
[[gnu::target("avx2,f16c")]] void store_by_f16c(void* to, const float* from, size_t n) {
  auto* words = static_cast<typename Type::Word*>(to);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    Floats eight;
    std::memcpy(&eight, from + i, sizeof(eight));
    Eight<Type>::store(words + i, eight);
  }
  for (; i < n; ++i) words[i] = Type::store(from[i]);
}
#endif

template <typename Type>
Conversion conversion_of() {
#if defined(__x86_64__)
  if constexpr (kHasEight<Type>) {
    if (has_f16c()) return {load_by_f16c<Type>, store_by_f16c<Type>};
  }
  if (__builtin_cpu_supports("avx2")) return {load_by_avx2<Type>, store_by_avx2<Type>};
#endif
  return {load_portably<Type>, store_portably<Type>};
}

// Codes are only made of finite values.
template <typename Float8>
struct FiniteFloat8 : Float8 {
  [[gnu::always_inline]] static typename Float8::Word store(float value) {
    return Float8::store_finite(value);
  }
};

// Returns the conversion of codes that are floats. Integer codes have none.
template <Format format>
Conversion conversion_of_codes() {
  if constexpr (format == Format::E4m3) return conversion_of<FiniteFloat8<E4m3>>();
  if constexpr (format == Format::E5m2) return conversion_of<FiniteFloat8<E5m2>>();
  return {};
}

// Integer codes are made and read as int8; int4 packs two of them.
[[gnu::always_inline]] inline void pack(uint8_t* to, const int8_t* codes, size_t n) {
  for (size_t i = 0; i < n / 2; ++i) {
    uint16_t pair = 0;
    std::memcpy(&pair, codes + 2 * i, sizeof(pair));
    to[i] = static_cast<uint8_t>((pair & 15U) | (pair >> 4U & 0xf0U));
  }
  if (n % 2 != 0) to[n / 2] = static_cast<uint8_t>(codes[n - 1] & 15);
}

[[gnu::always_inline]] inline void unpack(int8_t* codes, const uint8_t* from, size_t n) {
  for (size_t i = 0; i < (n + 1) / 2; ++i) {
    const auto pair = static_cast<uint16_t>((from[i] & 15U) | (from[i] & 0xf0U) << 4U);
    std::memcpy(codes + 2 * i, &pair, sizeof(pair));
  }
  for (size_t i = 0; i < n; ++i) codes[i] = static_cast<int8_t>((codes[i] ^ 8) - 8);
}

template <Format format>
constexpr float kLargest = format == Format::Int8   ? 127.0F
                           : format == Format::Int4 ? 7.0F
                           : format == Format::E4m3 ? 448.0F
                                                    : 57344.0F;

// Returns pseudo-random bits for a counter: lowbias32 of Ellis and Wellons' hash prospector.
[[gnu::always_inline]] inline uint32_t scramble(uint32_t x) {
  x = (x ^ x >> 16U) * 0x7feb352dU;
  x = (x ^ x >> 15U) * 0x846ca68bU;
  return x ^ x >> 16U;
}

// The counter's step from element to element.
constexpr uint32_t kStep = 0x9e3779b9U;
uint32_t counter_of(const Reduction& call, size_t at) {
  const uint64_t element = call.first_element + at;
  return static_cast<uint32_t>(element) * kStep +
         scramble(call.salt ^ static_cast<uint32_t>(element >> 32U));
}

// The fraction bits and the least normal number's exponent of e4m3 and e5m2.
template <Format format>
constexpr int kFraction = format == Format::E4m3 ? 3 : 2;
template <Format format>
constexpr uint32_t kLeastNormal = format == Format::E4m3 ? 121U << 23U : 113U << 23U;

// Moves values up or down before they are rounded.
template <Format format>
[[gnu::always_inline]] inline void dither(float* values, size_t n, uint32_t counter) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = scramble(counter + static_cast<uint32_t>(i) * kStep) >> 8U;
    const float by = static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-24F - 0.5F;
    if constexpr (format == Format::Int8 || format == Format::Int4) {
      const float moved = values[i] + by;
      values[i] = std::min(std::max(moved, -kLargest<format>), kLargest<format>);
    } else {
      const uint32_t exponent = std::bit_cast<uint32_t>(values[i]) & 0x7f800000U;
      const uint32_t step = std::max(exponent, kLeastNormal<format>) -
                            (static_cast<uint32_t>(kFraction<format>) << 23U);
      const auto moved = std::bit_cast<uint32_t>(values[i] + by * std::bit_cast<float>(step));
      // Codes are closer below a power of two, so a value moved below it becomes the power itself.
      const uint32_t least = exponent < kLeastNormal<format> ? 0 : exponent;
      const uint32_t most = std::bit_cast<uint32_t>(kLargest<format>);
      const uint32_t magnitude = std::min(std::max(moved & 0x7fffffffU, least), most);
      values[i] = std::bit_cast<float>(magnitude | (moved & 0x80000000U));
    }
  }
}

// `counter` is for stochastic codes. Returns the largest magnitude, NaN if an element is NaN.
template <Format format>
[[gnu::always_inline]] inline float encode(std::byte* to, const float* from, size_t n,
                                           const Conversion& conversion,
                                           std::optional<uint32_t> counter) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(from[i]) & 0x7fffffffU);
  }
  const bool finite = largest < 0x7f800000U;
  float scale = finite ? std::bit_cast<float>(largest) * (1.0F / kLargest<format>)
                       : std::bit_cast<float>(0x7fc00000U);
  if (scale < 0x1p-126F) scale = 0;
  const float inverse = finite && scale > 0 ? 1.0F / scale : 0;
  std::memcpy(to, &scale, sizeof(scale));
  auto* codes = reinterpret_cast<uint8_t*>(to + sizeof(scale));
  if (!finite) {  // NaNs have no code
    std::memset(codes, 0, format == Format::Int4 ? (n + 1) / 2 : n);
    return std::bit_cast<float>(largest);
  }
  Block scaled;
  for (size_t i = 0; i < n; ++i) scaled.at[i] = from[i] * inverse;
  if (counter) dither<format>(scaled.at, n, *counter);
  if constexpr (format == Format::E4m3 || format == Format::E5m2) {
    conversion.store(codes, scaled.at, n);
  } else {
    // The adder rounds at the lowest bit of the sum, which is worth one.
    constexpr float kRounder = 0x1.8p23F;
    alignas(64) int8_t whole[kMost + 1];
    for (size_t i = 0; i < n; ++i) {
      whole[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(scaled.at[i] + kRounder));
    }
    if constexpr (format == Format::Int4)
      pack(codes, whole, n);
    else
      std::memcpy(codes, whole, n);
  }
  return std::bit_cast<float>(largest);
}

// Writes the values of the codes, times `factor`.
template <Format format>
[[gnu::always_inline]] inline void decode(float* to, const std::byte* from, size_t n,
                                          const Conversion& conversion, float factor = 1) {
  float scale = 0;
  std::memcpy(&scale, from, sizeof(scale));
  scale *= factor;
  const auto* codes = reinterpret_cast<const uint8_t*>(from + sizeof(scale));
  if constexpr (format == Format::E4m3 || format == Format::E5m2) {
    conversion.load(to, codes, n);
    for (size_t i = 0; i < n; ++i) to[i] *= scale;
  } else if constexpr (format == Format::Int4) {
    alignas(64) int8_t whole[kMost + 2];
    unpack(whole, codes, n);
    for (size_t i = 0; i < n; ++i) to[i] = static_cast<float>(whole[i]) * scale;
  } else {
    const auto* whole = reinterpret_cast<const int8_t*>(codes);
    for (size_t i = 0; i < n; ++i) to[i] = static_cast<float>(whole[i]) * scale;
  }
}

[[gnu::always_inline]] inline void add(float* to, const float* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += from[i];
}

[[gnu::always_inline]] inline void multiply(float* values, float by, size_t n) {
  for (size_t i = 0; i < n; ++i) values[i] *= by;
}

[[gnu::always_inline]] inline void divide(float* sums, float by, size_t n) {
  for (size_t i = 0; i < n; ++i) sums[i] /= by;
}

// A block whose largest magnitude reaches this leaves a residual of zeros.
template <typename Type>
constexpr float kResidualLimit = std::is_same_v<Type, Half> ? 0x1p15F : 0x1p127F;

template <typename Type, Format format>
[[gnu::always_inline]] inline void run_blocks(const Reduction& call, size_t begin, size_t count) {
  const size_t block = call.encoding.block, element = sizeof(typename Type::Word);
  const size_t block_bytes = encoded_bytes(call.encoding, block);
  const auto place = [&](const void* base, bool encoded, size_t at) {
    return static_cast<const std::byte*>(base) +
           (encoded ? at / block * block_bytes : at * element);
  };
  const Conversion words = conversion_of<Type>(), codes = conversion_of_codes<format>();
  const bool averages = call.op == RedOp::Avg;
  const float down = averages ? static_cast<float>(call.divisor.down()) : 1;
  Block sums, one;
  for (size_t at = begin; at < begin + count; at += block) {
    const size_t n = std::min(block, begin + count - at);
    for (int s = 0; s < call.n_srcs; ++s) {
      float* to = s == 0 ? sums.at : one.at;
      const bool encoded = call.is_encoded(s);
      const std::byte* from = place(call.srcs[s], encoded, at);
      if (encoded)
        decode<format>(to, from, n, codes, down);
      else
        words.load(to, from, n);
      if (!encoded && averages) multiply(to, down, n);
      if (s > 0) add(sums.at, one.at, n);
    }
    if (averages) divide(sums.at, static_cast<float>(call.divisor.quotient()), n);
    auto* to = const_cast<std::byte*>(place(call.dst, call.result_is_encoded(), at));
    if (!call.result_is_encoded()) {
      words.store(to, sums.at, n);
      continue;
    }
    auto* residual = static_cast<std::byte*>(call.residual);
    if (residual != nullptr) {
      words.load(one.at, residual + at * element, n);
      add(sums.at, one.at, n);
    }
    std::optional<uint32_t> counter;
    if (call.encoding.stochastic) counter = counter_of(call, at);
    const float largest = encode<format>(to, sums.at, n, codes, counter);
    if (residual == nullptr) continue;
    decode<format>(one.at, to, n, codes);
    const bool keeps = largest < kResidualLimit<Type>;
    for (size_t i = 0; i < n; ++i) sums.at[i] = keeps ? sums.at[i] - one.at[i] : 0.0F;
    words.store(residual + at * element, sums.at, n);
  }
}

template <typename Type, Format format>
void run_portable(const Reduction& call, size_t begin, size_t count) {
  run_blocks<Type, format>(call, begin, count);
}

#if defined(__x86_64__)
template <typename Type, Format format>
[[gnu::target("avx2")]] void run_avx2(const Reduction& call, size_t begin, size_t count) {
  run_blocks<Type, format>(call, begin, count);
}
#endif

template <typename Type, Format format>
void run(const Reduction& call, size_t begin, size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return run_avx2<Type, format>(call, begin, count);
#endif
  run_portable<Type, format>(call, begin, count);
}

template <typename Type>
void run_format(const Reduction& call, size_t begin, size_t count) {
  switch (call.encoding.format) {
    case Format::Int4:
      return run<Type, Format::Int4>(call, begin, count);
    case Format::E4m3:
      return run<Type, Format::E4m3>(call, begin, count);
    case Format::E5m2:
      return run<Type, Format::E5m2>(call, begin, count);
    default:
      return run<Type, Format::Int8>(call, begin, count);
  }
}

}  // namespace

bool has_encoding(DataType type) {
  return type == DataType::Float32 || type == DataType::Float16 || type == DataType::BFloat16;
}

std::string_view name_of(Format format) {
  return kNames[static_cast<size_t>(format)];
}

std::string name_of(const Encoding& encoding) {
  std::string name(name_of(encoding.format));
  if (encoding.block != Encoding().block) name += ":" + std::to_string(encoding.block);
  if (encoding.stochastic) name += ":" + std::string(kStochastic);
  return name;
}

Result<Encoding> parse_encoding(std::string_view text) {
  if (text.empty()) return Encoding{};
  std::string_view rest = text;
  const auto next = [&rest] {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const std::string_view word = rest.substr(0, colon);
    rest.remove_prefix(std::min(colon + 1, rest.size()));
    return word;
  };
  const auto name = std::find(kNames.begin() + 1, kNames.end(), next());
  bool good = name != kNames.end() && !text.ends_with(':');
  Encoding encoding;
  uint32_t block = encoding.block;
  std::string_view word = next();
  if (!word.empty() && word != kStochastic) {
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), block);
    good = good && code == std::errc() && end == word.data() + word.size();
    word = next();
  }
  encoding.stochastic = word == kStochastic;
  good = good && (word.empty() || encoding.stochastic) && rest.empty();
  if (!good || !std::has_single_bit(block) || block < Encoding::kLeastBlock ||
      block > Encoding::kMostBlock) {
    return error(ErrorCode::InvalidArgument,
                 "\"%s\" is no encoding: give int8, int4, e4m3 or e5m2, and after colons the "
                 "elements of a block, a power of two from 32 to 512, and \"stochastic\"",
                 std::string(text).c_str());
  }
  encoding.format = static_cast<Format>(name - kNames.begin());
  encoding.block = static_cast<uint16_t>(block);
  return encoding;
}

uint32_t salt_of(uint64_t seed, uint64_t sequence, int rank) {
  uint32_t salt = 0;
  for (const uint64_t part : {seed, seed >> 32U, sequence, sequence >> 32U,
                              static_cast<uint64_t>(static_cast<uint32_t>(rank))}) {
    salt = scramble(salt * kStep + static_cast<uint32_t>(part) + 1);
  }
  return salt;
}

size_t encoded_bytes(const Encoding& encoding, uint64_t elements) {
  const uint64_t scales = divide_up(elements, encoding.block) * sizeof(float);
  // Blocks have an even size, so only the last one may end in half a byte.
  return scales + (encoding.format == Format::Int4 ? divide_up(elements, 2) : elements);
}

size_t bytes_of_operand(const Reduction& reduction, int which) {
  return reduction.is_encoded(which) ? encoded_bytes(reduction.encoding, reduction.count)
                                     : reduction.count * size_of(reduction.type);
}

void reduce_encoded(const Reduction& reduction, size_t begin, size_t count) {
  const DefaultFloatMode mode;
  switch (reduction.type) {
    case DataType::Float16:
      return run_format<Half>(reduction, begin, count);
    case DataType::BFloat16:
      return run_format<BFloat>(reduction, begin, count);
    default:
      return run_format<Plain<float>>(reduction, begin, count);
  }
}

}  // namespace hetccl
