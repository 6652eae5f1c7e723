#include "base/encoding.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/element.h"
#include "fake/sample.h"

namespace hetccl {
namespace {

constexpr DataType kEncodedTypes[] = {DataType::Float32, DataType::Float16, DataType::BFloat16};

float load(DataType type, const std::byte* at) {
  if (type == DataType::Float32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return type == DataType::Float16 ? element::Half::load(word) : element::BFloat::load(word);
}

void store(DataType type, std::byte* at, float value) {
  if (type == DataType::Float32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const uint16_t word =
      type == DataType::Float16 ? element::Half::store(value) : element::BFloat::store(value);
  std::memcpy(at, &word, sizeof(word));
}

struct Array {
  Array(DataType its_type, const std::vector<float>& values)
      : type(its_type), bytes(values.size() * size_of(its_type)) {
    for (size_t i = 0; i < values.size(); ++i) {
      store(type, bytes.data() + i * size_of(type), values[i]);
    }
  }
  [[nodiscard]] size_t count() const { return bytes.size() / size_of(type); }
  [[nodiscard]] float at(size_t i) const { return load(type, bytes.data() + i * size_of(type)); }
  DataType type;
  std::vector<std::byte> bytes;
};

std::vector<std::byte> encode(const Array& array, const Encoding& encoding, uint32_t salt = 0) {
  std::vector<std::byte> result(encoded_bytes(encoding, array.count()));
  Reduction call{.dst = result.data(), .n_srcs = 1, .count = array.count(), .type = array.type};
  call.srcs[0] = array.bytes.data();
  call.encoding = encoding;
  call.encoded = 1U << Reduction::kMaxSources;
  call.salt = salt;
  REQUIRE(validate(call).ok());
  reduce(call);
  return result;
}

Array decode(const std::vector<std::byte>& bytes, size_t count, DataType type,
             const Encoding& encoding) {
  Array result(type, std::vector<float>(count));
  Reduction call{.dst = result.bytes.data(), .n_srcs = 1, .count = count, .type = type};
  call.srcs[0] = bytes.data();
  call.encoding = encoding;
  call.encoded = 1;
  reduce(call);
  return result;
}

// Returns the bound that the header promises, before the result is rounded to the type.
double bound_of(const Encoding& encoding, double x, double largest) {
  double most = 0;
  switch (encoding.format) {
    case Format::Int8:
      most = largest / 127 / 2;
      break;
    case Format::Int4:
      most = largest / 7 / 2;
      break;
    case Format::E4m3:
      most = std::max(std::fabs(x) / 16, largest / 448 / 1024);
      break;
    default:
      most = std::max(std::fabs(x) / 8, largest / 57344 / 131072);
  }
  return most * (1 + 0x1p-20);
}

double rounding_of(DataType type, double x) {
  if (type == DataType::Float32) return std::fabs(x) * 0x1p-23 + 0x1p-149;
  return std::fabs(x) * (type == DataType::Float16 ? 0x1p-11 : 0x1p-8) + 0x1p-24;
}

TEST_CASE("what is encoded and decoded is within the bound") {
  std::mt19937 random(7);
  for (const Format format : kFormats) {
    for (const DataType type : kEncodedTypes) {
      for (const uint16_t block : std::initializer_list<uint16_t>{32, 64, 256, 512}) {
        const Encoding encoding{format, block};
        for (const size_t count : {1U, 2U, 31U, 32U, 33U, 511U, 1025U, 3000U}) {
          std::normal_distribution<float> normal(0, std::ldexp(1.0F, int(random() % 12) - 6));
          std::vector<float> values(count);
          for (float& value : values) value = random() % 20 == 0 ? 0 : normal(random);
          const Array array(type, values);
          const auto bytes = encode(array, encoding);
          const Array back = decode(bytes, count, type, encoding);
          for (size_t first = 0; first < count; first += block) {
            const size_t end = std::min(count, first + block);
            double largest = 0;
            for (size_t i = first; i < end; ++i)
              largest = std::max<double>(largest, std::fabs(array.at(i)));
            for (size_t i = first; i < end; ++i) {
              const double x = array.at(i), y = back.at(i);
              const double most = bound_of(encoding, x, largest);
              REQUIRE(std::fabs(x - y) <= most + rounding_of(type, std::fabs(x) + most));
            }
          }
        }
      }
    }
  }
}

// As the header says: x + r is encoded, and what the codes lack of it is left.
TEST_CASE("a residual is added, and then what the codes lack") {
  std::mt19937 random(11);
  for (const Format format : kFormats) {
    for (const DataType type : kEncodedTypes) {
      const bool half = type == DataType::Float16;
      // Uses a largest value just below the limit for zeros, at the limit, and beyond the type.
      for (const float largest :
           {1.0F, 0.99F * (half ? 0x1p15F : 0x1p127F), half ? 0x1p15F : 0x1p127F, 1e30F * 1e30F}) {
        const Encoding encoding{format, 32};
        std::uniform_real_distribution<float> values(-0.3F, 0.3F);
        std::vector<float> x(40), r(40);
        for (size_t i = 0; i < 40; ++i) x[i] = values(random), r[i] = values(random) / 8;
        x[5] = largest, r[5] = 0;
        const Array source(type, x), before(type, r);
        Array residual = before;
        std::vector<std::byte> codes(encoded_bytes(encoding, 40));
        Reduction call{.dst = codes.data(), .n_srcs = 1, .count = 40, .type = type};
        call.srcs[0] = source.bytes.data();
        call.encoding = encoding;
        call.encoded = 1U << Reduction::kMaxSources;
        call.residual = residual.bytes.data();
        REQUIRE(validate(call).ok());
        reduce(call);
        std::vector<float> sums(40);
        for (size_t i = 0; i < 40; ++i) sums[i] = source.at(i) + before.at(i);
        const Array whole(DataType::Float32, sums);
        CHECK(encode(whole, encoding) == codes);
        const Array decoded = decode(codes, 40, DataType::Float32, encoding);
        for (size_t i = 0; i < 40; ++i) {
          const bool zero = i < 32 && !(std::fabs(source.at(5)) < (half ? 0x1p15F : 0x1p127F));
          std::byte expected[4]{};
          store(type, expected, zero ? 0 : sums[i] - decoded.at(i));
          REQUIRE(residual.at(i) == load(type, expected));
        }
      }
    }
  }
}

TEST_CASE("a block's bytes are those that the header says") {
  // a = 127, so the scale is 1 and codes are the values; 0.5 and 1.5 round to even.
  std::vector<float> values(32, 0);
  values[0] = 127, values[1] = -127, values[2] = 0.5F, values[3] = 1.5F, values[4] = -3.2F;
  const auto bytes = encode(Array(DataType::Float32, values), {Format::Int8, 32});
  REQUIRE(bytes.size() == 36);
  float scale = 0;
  std::memcpy(&scale, bytes.data(), sizeof(scale));
  CHECK(scale == 1.0F);
  const auto code = [&](size_t i) { return static_cast<int8_t>(bytes[4 + i]); };
  CHECK(code(0) == 127);
  CHECK(code(1) == -127);
  CHECK(code(2) == 0);
  CHECK(code(3) == 2);
  CHECK(code(4) == -3);

  values.resize(33, 0);
  values[0] = 7, values[1] = -7, values[32] = 14;
  for (size_t i = 2; i < 32; ++i) values[i] = 0;
  const auto fours = encode(Array(DataType::Float32, values), {Format::Int4, 32});
  REQUIRE(fours.size() == 4 + 16 + 4 + 1);
  CHECK(std::to_integer<int>(fours[4]) == 0x97);  // -7 above 7
  std::memcpy(&scale, fours.data() + 20, sizeof(scale));
  CHECK(scale == 2.0F);
  CHECK(std::to_integer<int>(fours[24]) == 0x07);
}

TEST_CASE("what is no finite number stays one, of its whole block alone") {
  for (const Format format : kFormats) {
    for (const float special :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> values(96, 1.5F);
      values[40] = special;
      const Encoding encoding{format, 32};
      for (const DataType type : kEncodedTypes) {
        const Array array(type, values);
        const Array back = decode(encode(array, encoding), 96, type, encoding);
        for (size_t i = 0; i < 96; ++i) CHECK(std::isnan(back.at(i)) == (i / 32 == 1));
      }
    }
  }
}

TEST_CASE("the smallest numbers and zeros") {
  for (const Format format : kFormats) {
    std::vector<float> values(32, 0);
    const Encoding encoding{format, 32};
    for (const float tiny : {0.0F, 0x1p-149F, 0x1p-126F, -0x1p-120F}) {
      values[3] = tiny;
      const Array back = decode(encode(Array(DataType::Float32, values), encoding), 32,
                                DataType::Float32, encoding);
      for (size_t i = 0; i < 32; ++i) CHECK(std::fabs(back.at(i)) <= 0x1p-110F);
      CHECK(std::fabs(back.at(3) - tiny) <= 57344 * 0x1p-126);
    }
    values[3] = std::numeric_limits<float>::max() / 2;
    const Array back =
        decode(encode(Array(DataType::Float32, values), encoding), 32, DataType::Float32, encoding);
    CHECK(std::fabs(back.at(3) / values[3] - 1) < 1e-5);
  }
}

// Sources of both kinds, cut between any blocks, give the same as decoding all and adding in fp32.
TEST_CASE("sums of encoded and other sources round once") {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (const Format format : kFormats) {
    for (const DataType type : kEncodedTypes) {
      const Encoding encoding{format, 64};
      constexpr size_t kCount = 1000;
      const int n = 1 + static_cast<int>(random() % 5);
      std::vector<Array> arrays;
      std::vector<std::vector<std::byte>> encoded;
      Reduction call{.n_srcs = n, .count = kCount, .type = type, .op = RedOp::Avg, .divisor = 3};
      call.encoding = encoding;
      for (int s = 0; s < n; ++s) {
        std::vector<float> values(kCount);
        for (float& value : values) value = normal(random);
        arrays.emplace_back(type, values);
        encoded.push_back(encode(arrays.back(), encoding));
      }
      std::vector<float> sums(kCount);
      for (int s = 0; s < n; ++s) {
        const auto which = static_cast<size_t>(s);
        const bool is_encoded = s % 2 == 0;
        call.srcs[s] = is_encoded ? encoded[which].data() : arrays[which].bytes.data();
        call.encoded |= is_encoded ? 1U << s : 0;
        const Array decoded = decode(encoded[which], kCount, DataType::Float32, encoding);
        for (size_t i = 0; i < kCount; ++i) {
          const float value = is_encoded ? decoded.at(i) : arrays[which].at(i);
          sums[i] = s == 0 ? value : sums[i] + value;
        }
      }
      for (float& sum : sums) sum /= 3;
      Array result(type, std::vector<float>(kCount)), wanted(type, sums);
      call.dst = result.bytes.data();
      reduce_encoded(call, 0, 320);
      reduce_encoded(call, 320, kCount - 320);
      CHECK(result.bytes == wanted.bytes);

      std::vector<std::byte> coded(encoded_bytes(encoding, kCount));
      call.dst = coded.data();
      call.encoded |= 1U << Reduction::kMaxSources;
      reduce(call);
      CHECK(coded == encode(Array(DataType::Float32, sums), encoding));
    }
  }
}

// The mean of many codes is the value, and each is one of its neighbours; an equal salt gives equal
// codes.
TEST_CASE("stochastic codes are right on average") {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> spread(-1, 1);
  for (const Format format : kFormats) {
    std::vector<float> values(256);
    for (float& value : values) value = spread(random);
    values[7] = 1, values[8] = 0;
    values[9] = 256.0F / 448, values[10] = 257.0F / 448, values[11] = -258.0F / 448;
    const Array array(DataType::Float32, values);
    const Encoding encoding{format, 256, true};
    const int kRounds = static_cast<int>(std::min<uint64_t>(4000, 1000 * fake::scale()));
    std::vector<double> sums(values.size());
    for (int round = 0; round < kRounds; ++round) {
      const uint32_t salt = salt_of(1, static_cast<uint64_t>(round), 0);
      const Array back = decode(encode(array, encoding, salt), 256, DataType::Float32, encoding);
      for (size_t i = 0; i < 256; ++i) {
        sums[i] += back.at(i);
        REQUIRE(std::fabs(back.at(i) - values[i]) <=
                2 * bound_of(encoding, 1.2 * values[i], 1) + 1e-6);
      }
    }
    for (size_t i = 0; i < 256; ++i) {
      const double step = 2 * bound_of(encoding, values[i], 1);
      CHECK(std::fabs(sums[i] / kRounds - values[i]) < 5 * step / std::sqrt(kRounds));
    }
    CHECK(sums[8] == 0);
    CHECK(encode(array, encoding, 5) == encode(array, encoding, 5));
    CHECK(encode(array, encoding, 5) != encode(array, encoding, 6));
  }
}

TEST_CASE("a block's largest element keeps its code when that is moved up furthest") {
  const uint32_t salt = 0x694d9559U;  // moves element 0 by 1/2 - 2^-24 of a step
  for (const Format format : kFormats) {
    const Encoding encoding{.format = format, .block = 32, .stochastic = true};
    for (const float largest : {57344.0F, 3.3e38F, 1.7e-30F}) {
      std::vector<float> values(32, 0.0F);
      values[0] = largest;
      const Array array(DataType::Float32, values);
      const Array back = decode(encode(array, encoding, salt), 32, DataType::Float32, encoding);
      CHECK(back.at(0) == doctest::Approx(largest).epsilon(1e-6));
    }
  }
}

TEST_CASE("salts differ by seed, call and rank") {
  CHECK(salt_of(0, 1, 0) != salt_of(1, 0, 0));
  CHECK(salt_of(0, 1, 0) != salt_of(0, 0, 1));
  CHECK(salt_of(uint64_t{1} << 40U, 0, 0) != salt_of(0, 0, 0));
  CHECK(salt_of(3, 4, 5) == salt_of(3, 4, 5));
}

TEST_CASE("names") {
  for (const char* name :
       {"int8", "int4:128", "e4m3:32", "e5m2:512", "int8:stochastic", "int4:64:stochastic"}) {
    const auto encoding = parse_encoding(name);
    REQUIRE(encoding.ok());
    CHECK(name_of(encoding.value()) == name);
  }
  CHECK(parse_encoding("").value().is_none());
  for (const char* name :
       {"int9", "int8:", "int8:33", "int8:16", "int8:1024", "int8:64x", ":64", "int8:stochastic:64",
        "int8:random", "int8:64:stochastic:1", "int8::64"}) {
    CHECK(parse_encoding(name).status().code() == ErrorCode::InvalidArgument);
  }
}

}  // namespace
}  // namespace hetccl
