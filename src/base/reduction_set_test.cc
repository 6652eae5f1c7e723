#include "base/reduction_set.h"

#include <doctest/doctest.h>

#include <vector>

namespace hetccl {
namespace {

std::vector<uint64_t> masks_of(const ReductionSet& set) {
  return {set.masks().begin(), set.masks().end()};
}

TEST_CASE("all reductions are those of valid types and operators that apply") {
  const ReductionSet all = ReductionSet::all();
  int n = 0;
  for (int type = 0; type <= UINT8_MAX; ++type) {
    for (int op = 0; op <= UINT8_MAX; ++op) {
      const auto t = static_cast<DataType>(type);
      const auto o = static_cast<RedOp>(op);
      const bool exists = is_valid(t) && is_valid(o) && applies(o, t);
      CHECK(all.has(t, o) == exists);
      CHECK_FALSE(ReductionSet().has(t, o));
      n += exists ? 1 : 0;
    }
  }
  CHECK(n == 14 * 6 + 8 * 3);
}

TEST_CASE("a set has what was supported, and averages only where it has sums") {
  const auto no_int16 = [](DataType type, RedOp) { return type != DataType::Int16; };
  ReductionSet set = ReductionSet::where(no_int16);
  CHECK_FALSE(set.has(DataType::Int16, RedOp::Bxor));
  CHECK(set.has(DataType::Uint16, RedOp::Bxor));
  set &= ReductionSet::where([](DataType, RedOp op) { return op != RedOp::Sum; });
  CHECK(set.has(DataType::Float32, RedOp::Max));
  CHECK_FALSE(set.has(DataType::Float32, RedOp::Avg));
  CHECK_FALSE(set.has(DataType::Float32, RedOp::PreMulSum));
}

TEST_CASE("masks of another process are read or refused") {
  const auto masks = masks_of(ReductionSet::all());
  CHECK(ReductionSet::from(masks) == ReductionSet::all());
  CHECK(ReductionSet::from(std::vector<uint64_t>(9)) == ReductionSet());
  CHECK_FALSE(ReductionSet::from({}));
  CHECK_FALSE(ReductionSet::from(std::vector<uint64_t>(8)));
  CHECK_FALSE(ReductionSet::from(std::vector<uint64_t>(10)));
  for (const auto& [op, bit] : {std::pair{0, 14}, {3, 63}, {6, 7}}) {  // the last: float32, band
    auto wrong = masks;
    wrong[static_cast<size_t>(op)] |= uint64_t{1} << bit;
    CHECK_FALSE(ReductionSet::from(wrong));
  }
}

}  // namespace
}  // namespace hetccl
