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
  CHECK_FALSE(is_valid(static_cast<RedOp>(63)));
  CHECK_FALSE(is_valid(static_cast<RedOp>(67)));
  for (const RedOp op : {RedOp::Band, RedOp::Bor, RedOp::Bxor}) {
    CHECK(is_valid(op));
    CHECK(applies(op, DataType::Uint16));
    CHECK(applies(op, DataType::Int64));
    CHECK_FALSE(applies(op, DataType::Float32));
    CHECK_FALSE(applies(op, DataType::Float8E5m2));
  }
  CHECK(applies(RedOp::PreMulSum, DataType::Float32));
  CHECK(name_of(RedOp::Bxor) == "bxor");
  CHECK(name_of(RedOp::PreMulSum) == "premul_sum");
  CHECK(name_of(Collective::Reduce) == "reduce");
  CHECK(name_of(RedOp::Prod) == "prod");
  CHECK(name_of(static_cast<RedOp>(77)) == "unknown reduction");
  CHECK(name_of(Collective::ReduceScatter) == "reduce_scatter");
  CHECK(name_of(static_cast<Collective>(77)) == "unknown collective");
}

TEST_CASE("a call is described by what matters to it") {
  CHECK(describe({Collective::Barrier, {}, {}, 0, 0}) == "barrier");
  CHECK(describe({Collective::Barrier, {}, {}, 0, 0}, 7) == "barrier #7");
  CHECK(describe({Collective::Broadcast, DataType::Int8, {}, 3, 4}, 0) ==
        "broadcast #0 (4 int8, root 3)");
  CHECK(describe({Collective::Reduce, DataType::Float8E4m3, RedOp::PreMulSum, 3, 4}) ==
        "reduce (4 float8_e4m3, premul_sum, root 3)");
  CHECK(describe({Collective::AllGather, DataType::Int8, {}, 0, 4}) == "all_gather (4 int8)");
  CHECK(describe({Collective::AllReduce, DataType::Float32, RedOp::Max, 0, 1048576}, 17) ==
        "all_reduce #17 (1048576 float32, max)");
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
