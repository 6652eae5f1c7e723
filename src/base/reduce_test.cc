#include "base/reduce.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "fake/reference.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace hetccl;
using namespace hetccl::fake;

namespace {

using Bytes = std::vector<std::byte>;

std::vector<const void*> pointers(const std::vector<Bytes>& sources) {
  std::vector<const void*> result;
  for (const Bytes& source : sources) result.push_back(source.data());
  return result;
}

void check(DataType type, RedOp op, size_t count, int n_srcs, int alias, std::mt19937_64& random) {
  std::vector<Bytes> sources;
  for (int s = 0; s < n_srcs; ++s) sources.push_back(random_elements(random, type, count));
  Bytes expected(count * size_of(type)), result(count * size_of(type));
  const auto divisor = static_cast<uint32_t>(1 + random() % 7);
  const auto factors = random_factors(random, type, sources.size());
  reference_reduce(expected.data(), pointers(sources), count, type, op, divisor, factors.data());
  const std::string what = std::string(name_of(type)) + " " + std::string(name_of(op));
  reduce(result.data(), pointers(sources).data(), n_srcs, count, type, op, divisor, factors.data(),
         Caching::Bypass);
  CHECK_MESSAGE(result == expected, what << " past the caches, count " << count);
  std::fill(result.begin(), result.end(), std::byte{0xee});
  Bytes& dst = alias < 0 ? result : sources[static_cast<size_t>(alias)];
  reduce(dst.data(), pointers(sources).data(), n_srcs, count, type, op, divisor, factors.data());
  CHECK_MESSAGE(dst == expected, what << " count " << count << " of " << n_srcs << " sources");
}

}  // namespace

TEST_CASE("every type and operator gives the reference's bits") {
  std::mt19937_64 random(1);
  for (DataType type : kTypes)
    for (RedOp op : ops_of(type))
      for (size_t count : {0, 1, 2, 3, 7, 8, 9, 31, 100, 1023, 1024, 1025, 3001})
        for (int n_srcs : {1, 2, 3, 5, 16, 40}) check(type, op, count, n_srcs, -1, random);
}

TEST_CASE("an identity changes no bit, on either side") {
  std::mt19937_64 random(7);
  constexpr size_t kCount = 2000;
  for (DataType type : kTypes) {
    for (RedOp op : {RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min}) {
      const size_t width = size_of(type);
      const Factor one = identity_of(type, op);
      Bytes identities;
      for (size_t i = 0; i < kCount; ++i) {
        const auto* first = reinterpret_cast<const std::byte*>(one.element);
        identities.insert(identities.end(), first, first + width);
      }
      const Bytes values = random_elements(random, type, kCount);
      Bytes alone(values.size()), left(values.size()), right(values.size());
      const auto combine = [&](Bytes& dst, const std::vector<Bytes>& sources) {
        reduce(dst.data(), pointers(sources).data(), static_cast<int>(sources.size()), kCount, type,
               op, 1, nullptr);
      };
      combine(left, {identities, values});
      combine(right, {values, identities});
      combine(alone, {values});  // makes NaNs canonical, and saturates
      const std::string what = std::string(name_of(type)) + " " + std::string(name_of(op));
      CHECK_MESSAGE(left == alone, what);
      CHECK_MESSAGE(right == alone, what);
    }
  }
}

TEST_CASE("the result may replace any source") {
  std::mt19937_64 random(2);
  for (DataType type : kTypes)
    for (RedOp op : ops_of(type))
      for (int n_srcs : {1, 2, 4})
        for (int alias = 0; alias < n_srcs; ++alias) check(type, op, 1111, n_srcs, alias, random);
}

TEST_CASE("every 16-bit float is read right, and every rounding boundary is written right") {
  for (const auto& [type, kind] :
       {std::pair{DataType::Float16, kHalf}, std::pair{DataType::BFloat16, kBFloat}}) {
    // Adds y to all x, for y's that produce halves of the last bit; Avg by 3 for odd tails.
    for (int other : {0x0000, 0x8000, 0x0001, 0x03ff, 0x3c00, 0x3c01, 0x7bff, 0x3f80}) {
      std::vector<uint16_t> x(65536), y(65536, static_cast<uint16_t>(other)), expected(65536),
          wide(65536);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
      const void* srcs[] = {x.data(), y.data()};
      for (RedOp op : {RedOp::Sum, RedOp::Prod, RedOp::Avg}) {
        reference_reduce(expected.data(), srcs, x.size(), type, op, 3);
        reduce(wide.data(), srcs, 2, x.size(), type, op, 3, nullptr);
        CHECK(wide == expected);
        // Few elements take the scalar path.
        for (size_t i = 0; i < x.size(); i += 3) {
          const void* few[] = {&x[i], &y[i]};
          reduce(&wide[i], few, 2, std::min<size_t>(3, x.size() - i), type, op, 3, nullptr);
        }
        CHECK(wide == expected);
      }
    }
    CHECK(kind.decode(kind.encode(1.5F)) == 1.5F);
  }
}

TEST_CASE("every pair of fp8 numbers reduces to the nearest one of the exact result") {
  // Two operands have at most 4 significant bits each: the exact sum and product fit into a double,
  // and rounding to fp32 first never creates a tie.
  for (const auto& [type, kind] :
       {std::pair{DataType::Float8E4m3, kE4m3}, std::pair{DataType::Float8E5m2, kE5m2}}) {
    std::vector<uint8_t> a(65536), b(65536), expected(65536), result(65536);
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<uint8_t>(i);
      b[i] = static_cast<uint8_t>(i >> 8);
    }
    const void* srcs[] = {a.data(), b.data()};
    for (RedOp op : {RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min}) {
      for (size_t i = 0; i < a.size(); ++i) {
        const double exact = reference_combine(op, kind.decode(a[i]), kind.decode(b[i]));
        expected[i] = static_cast<uint8_t>(kind.encode(exact));
      }
      reduce(result.data(), srcs, 2, a.size(), type, op, 1, nullptr);
      CHECK_MESSAGE(result == expected, name_of(type), " ", name_of(op));
      for (size_t i = 0; i < a.size(); i += 7) {
        const void* one[] = {&a[i], &b[i]};
        reduce(&result[i], one, 2, 1, type, op, 1, nullptr);
      }
      CHECK_MESSAGE(result == expected, name_of(type), " ", name_of(op), ", one by one");
    }
  }
}

TEST_CASE("the special numbers of fp8") {
  const auto sum = [](DataType type, uint8_t a, uint8_t b) {
    uint8_t result = 0;
    const void* srcs[] = {&a, &b};
    reduce(&result, srcs, 2, 1, type, RedOp::Sum, 1, nullptr);
    return int{result};
  };
  CHECK(sum(DataType::Float8E4m3, 0x7e, 0x7e) == 0x7e);  // 448 + 448 saturates
  CHECK(sum(DataType::Float8E4m3, 0xfe, 0xfe) == 0xfe);
  CHECK(sum(DataType::Float8E4m3, 0x7e, 0x58) == 0x7e);  // 448 + 16 is half-way to 480
  CHECK(sum(DataType::Float8E4m3, 0xff, 0x00) == 0x7f);  // NaN, made canonical
  CHECK(sum(DataType::Float8E4m3, 0x01, 0x01) == 0x02);  // denormals
  CHECK(sum(DataType::Float8E4m3, 0x80, 0x80) == 0x80);  // -0
  CHECK(sum(DataType::Float8E5m2, 0x7b, 0x7b) == 0x7b);
  CHECK(sum(DataType::Float8E5m2, 0x7c, 0x00) == 0x7b);  // infinity saturates, too
  CHECK(sum(DataType::Float8E5m2, 0x7c, 0xfc) == 0x7f);  // inf - inf is NaN
  CHECK(sum(DataType::Float8E5m2, 0xfd, 0x00) == 0x7f);
}

TEST_CASE("fp8 averages round quotients of every size") {
  for (DataType type : {DataType::Float8E4m3, DataType::Float8E5m2}) {
    std::vector<uint8_t> codes(256), expected(256), result(256);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
    const void* srcs[] = {codes.data(), codes.data(), codes.data()};
    for (uint32_t divisor = 1; divisor < 1000; ++divisor) {
      reference_reduce(expected.data(), srcs, 256, type, RedOp::Avg, divisor);
      reduce(result.data(), srcs, 3, 256, type, RedOp::Avg, divisor, nullptr);
      CHECK_MESSAGE(result == expected, name_of(type), " / ", divisor);
    }
  }
}

TEST_CASE("each source has its own factor, multiplied in the type that accumulates") {
  // fp16: 3 * 0.1 is not exact in fp16; the sum must round once, at the end.
  const uint16_t x[] = {0x4200, 0x4200};  // 3
  Factor factors[2] = {element_of(DataType::Float16, 0.1), element_of(DataType::Float16, 1e-3)};
  const void* srcs[] = {&x[0], &x[1]};
  uint16_t result = 0;
  reduce(&result, srcs, 2, 1, DataType::Float16, RedOp::PreMulSum, 1, factors);
  const auto f = [&](int i) {
    return static_cast<float>(kHalf.decode(kHalf.encode(i == 0 ? 0.1 : 1e-3)));
  };
  CHECK(result == kHalf.encode(3 * f(0) + 3 * f(1)));
  const int8_t a = 100, b = -3;
  int8_t wrapped = 0;
  factors[0] = element_of(DataType::Int8, 3), factors[1] = element_of(DataType::Int8, -2);
  const void* ints[] = {&a, &b};
  reduce(&wrapped, ints, 2, 1, DataType::Int8, RedOp::PreMulSum, 1, factors);
  CHECK(wrapped == static_cast<int8_t>(306));
}

TEST_CASE("averages of 32-bit integers are exact next to every multiple of the divisor") {
  std::mt19937_64 random(6);
  constexpr uint32_t kDivisors[] = {1, 2, 3, 7, 641, 65'537, 0x7fffffff, 0x80000000, 0xfffffffb};
  for (uint32_t divisor : kDivisors) {
    std::vector<uint32_t> sums = {0, 1, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff};
    for (int i = 0; i < 2000; ++i) {
      const auto multiple =
          static_cast<uint32_t>(random() % (0xffffffffULL / divisor + 1) * divisor);
      for (uint32_t near : {multiple - 1, multiple, multiple + 1}) sums.push_back(near);
    }
    const std::vector<uint32_t> zeros(sums.size());
    const void* srcs[] = {sums.data(), zeros.data()};
    std::vector<uint32_t> result(sums.size()), expected(sums.size());
    for (DataType type : {DataType::Uint32, DataType::Int32}) {
      reference_reduce(expected.data(), srcs, sums.size(), type, RedOp::Avg, divisor);
      reduce(result.data(), srcs, 2, sums.size(), type, RedOp::Avg, divisor, nullptr);
      CHECK_MESSAGE(result == expected, name_of(type), " / ", divisor);
    }
  }
}

double value_of(DataType type, const Factor& element) {
  uint16_t word = 0;
  float single = 0;
  double value = 0;
  std::memcpy(&word, element.element, std::min(sizeof word, size_of(type)));
  if (const SmallFloat* kind = small_float(type)) return kind->decode(word);
  std::memcpy(&single, element.element, sizeof single);
  std::memcpy(&value, element.element, sizeof value);
  return type == DataType::Float32 ? single : value;
}

// Returns the mean of `n` equal numbers of a float type. `by_hops`: as clusters compute it: scaled,
// added one by one with rounding to the type each time, and divided at the end.
double mean_of_equals(DataType type, double value, uint32_t n, bool by_hops) {
  const Factor element = element_of(type, value);
  std::vector<const void*> srcs(n, element.element);
  Factor result, scaled;
  if (!by_hops) {
    reduce(result.element, srcs.data(), static_cast<int>(n), 1, type, RedOp::Avg, n, nullptr);
    return value_of(type, result);
  }
  const void* one[] = {element.element};
  reduce(scaled.element, one, 1, 1, type, RedOp::Avg, static_cast<uint32_t>(Divisor(n).power()),
         nullptr);
  Factor factors[] = {down_of(type, n)};
  reduce(result.element, one, 1, 1, type, RedOp::PreMulSum, 1, factors);
  CHECK(value_of(type, scaled) == value_of(type, result));  // as a library does
  for (uint32_t i = 1; i < n; ++i) {
    const void* pair[] = {result.element, scaled.element};
    reduce(result.element, pair, 2, 1, type, RedOp::Sum, 1, nullptr);
  }
  const void* sum[] = {result.element};
  reduce(result.element, sum, 1, 1, type, RedOp::Avg, {n, true}, nullptr);
  return value_of(type, result);
}

TEST_CASE("a mean of equal numbers is that number, where their sum overflows, too") {
  struct Kind {
    DataType type;
    double largest, ulp;  // relative
  };
  for (const auto& [type, largest, ulp] :
       {Kind{DataType::Float16, 65504, 0x1p-10}, Kind{DataType::BFloat16, 0x1.fep127, 0x1p-7},
        Kind{DataType::Float32, 0x1.fffffep127, 0x1p-23},
        Kind{DataType::Float64, std::numeric_limits<double>::max(), 0x1p-52},
        Kind{DataType::Float8E4m3, 448, 0x1p-3}, Kind{DataType::Float8E5m2, 57344, 0x1p-2}}) {
    for (uint32_t n = 1; n <= 40; ++n) {
      CAPTURE(name_of(type));
      CAPTURE(n);
      const bool narrow = size_of(type) < 4;
      for (const double value : {largest, -largest, largest / 2, 1.0, 0.75, -1.5}) {
        const double mean = mean_of_equals(type, value, n, false);
        CHECK(std::fabs(mean / value - 1) <= (narrow ? 0 : n * ulp));
        // Each hop rounds once, by at most half a unit of the last place.
        CHECK(std::fabs(mean_of_equals(type, value, n, true) / value - 1) <= (n + 1) * ulp / 2);
      }
    }
  }
}

TEST_CASE("averages of integers truncate toward zero and do not wrap on the way") {
  const int8_t a = -7, b = -100, c = 127;
  int8_t result = 0;
  const void* srcs[] = {&a, &b, &b, &c};
  reduce(&result, srcs, 4, 1, DataType::Int8, RedOp::Avg, 4, nullptr);
  CHECK(result == -20);
  const void* one[] = {&a};
  reduce(&result, one, 1, 1, DataType::Int8, RedOp::Avg, 2, nullptr);
  CHECK(result == -3);
}

#if defined(__x86_64__)
TEST_CASE("a caller's flush-to-zero mode changes nothing and survives") {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  const float tiny = 1e-41F;
  float result = 0;
  const void* srcs[] = {&tiny, &tiny};
  reduce(&result, srcs, 2, 1, DataType::Float32, RedOp::Sum, 1, nullptr);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK((after & 0x8040) == 0x8040);
  CHECK(std::bit_cast<uint32_t>(result) == 2 * std::bit_cast<uint32_t>(tiny));
}
#endif
