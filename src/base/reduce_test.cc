#include "base/reduce.h"

#include <doctest/doctest.h>

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
  reference_reduce(expected.data(), pointers(sources), count, type, op, divisor);
  Bytes& dst = alias < 0 ? result : sources[static_cast<size_t>(alias)];
  reduce(dst.data(), pointers(sources).data(), n_srcs, count, type, op, divisor);
  const std::string what = std::string(name_of(type)) + " " + std::string(name_of(op));
  CHECK_MESSAGE(dst == expected, what << " count " << count << " of " << n_srcs << " sources");
}

}  // namespace

TEST_CASE("every type and operator gives the reference's bits") {
  std::mt19937_64 random(1);
  for (DataType type : kTypes)
    for (RedOp op : kOps)
      for (size_t count : {0, 1, 2, 3, 7, 8, 9, 31, 100, 1023, 1024, 1025, 3001})
        for (int n_srcs : {1, 2, 3, 5, 16, 40}) check(type, op, count, n_srcs, -1, random);
}

TEST_CASE("the result may replace any source") {
  std::mt19937_64 random(2);
  for (DataType type : kTypes)
    for (RedOp op : kOps)
      for (int n_srcs : {1, 2, 4})
        for (int alias = 0; alias < n_srcs; ++alias) check(type, op, 1111, n_srcs, alias, random);
}

TEST_CASE("every 16-bit float is read right, and every rounding boundary is written right") {
  for (const auto& [type, kind] :
       {std::pair{DataType::Float16, kHalf}, std::pair{DataType::BFloat16, kBFloat}}) {
    // x + y over all x, with y's that produce halves of the last bit; Avg by 3 for odd tails.
    for (int other : {0x0000, 0x8000, 0x0001, 0x03ff, 0x3c00, 0x3c01, 0x7bff, 0x3f80}) {
      std::vector<uint16_t> x(65536), y(65536, static_cast<uint16_t>(other)), expected(65536),
          wide(65536);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
      const void* srcs[] = {x.data(), y.data()};
      for (RedOp op : {RedOp::Sum, RedOp::Prod, RedOp::Avg}) {
        reference_reduce(expected.data(), srcs, x.size(), type, op, 3);
        reduce(wide.data(), srcs, 2, x.size(), type, op, 3);
        CHECK(wide == expected);
        // Few elements take the scalar path.
        for (size_t i = 0; i < x.size(); i += 3) {
          const void* few[] = {&x[i], &y[i]};
          reduce(&wide[i], few, 2, std::min<size_t>(3, x.size() - i), type, op, 3);
        }
        CHECK(wide == expected);
      }
    }
    CHECK(kind.decode(kind.encode(1.5F)) == 1.5F);
  }
}

TEST_CASE("averages of integers truncate toward zero and do not wrap on the way") {
  const int8_t a = -7, b = -100, c = 127;
  int8_t result = 0;
  const void* srcs[] = {&a, &b, &b, &c};
  reduce(&result, srcs, 4, 1, DataType::Int8, RedOp::Avg, 4);
  CHECK(result == -20);
  const void* one[] = {&a};
  reduce(&result, one, 1, 1, DataType::Int8, RedOp::Avg, 2);
  CHECK(result == -3);
}

#if defined(__x86_64__)
TEST_CASE("a caller's flush-to-zero mode changes nothing and survives") {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  const float tiny = 1e-41F;
  float result = 0;
  const void* srcs[] = {&tiny, &tiny};
  reduce(&result, srcs, 2, 1, DataType::Float32, RedOp::Sum, 1);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK((after & 0x8040) == 0x8040);
  CHECK(std::bit_cast<uint32_t>(result) == 2 * std::bit_cast<uint32_t>(tiny));
}
#endif
