#include "base/types.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

namespace hetccl {
namespace {

TEST_CASE("fourteen element types: sizes, names, validity") {
  std::set<std::string_view> names;
  size_t bytes = 0;
  for (int value = 0; value < 256; ++value) {
    const auto type = static_cast<DataType>(value);
    if (!is_valid(type)) {
      CHECK(size_of(type) == 0);
      CHECK(name_of(type) == "unknown type");
      continue;
    }
    names.insert(name_of(type));
    bytes += size_of(type);
  }
  CHECK(names.size() == 14);
  CHECK(bytes == 4 * 1 + 4 * 2 + 3 * 4 + 3 * 8);
  CHECK(size_of(DataType::BFloat16) == 2);
  CHECK(name_of(DataType::Float32) == "float32");
}

TEST_CASE("reductions and collectives") {
  CHECK(is_valid(RedOp::PreMulSum));
  CHECK_FALSE(is_valid(static_cast<RedOp>(6)));
  CHECK(name_of(RedOp::PreMulSum) == "premul_sum");
  CHECK(name_of(Collective::Reduce) == "reduce");
  CHECK(name_of(RedOp::Prod) == "prod");
  CHECK(name_of(static_cast<RedOp>(77)) == "unknown reduction");
  CHECK(name_of(Collective::ReduceScatter) == "reduce_scatter");
  CHECK(name_of(static_cast<Collective>(77)) == "unknown collective");
}

TEST_CASE("values are NCCL's, so that adaptors pass them on") {
  CHECK(static_cast<int>(DataType::Float32) == 7);
  CHECK(static_cast<int>(DataType::BFloat16) == 9);
  CHECK(static_cast<int>(DataType::Float8E4m3) == 10);
  CHECK(static_cast<int>(DataType::Float8E5m2) == 11);
  CHECK(static_cast<int>(RedOp::Min) == 3);
}

}  // namespace
}  // namespace hetccl
