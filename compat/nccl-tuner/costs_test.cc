#include "nccl-tuner/costs.h"

#include <doctest/doctest.h>

namespace hetccl::nccl_tuner {
namespace {

using enum Tactic::Algorithm;
using enum Tactic::Protocol;

plan::Resources resources(int algorithm, int protocol, int channels = 0) {
  plan::Resources made;
  made.tactic.algorithm = static_cast<uint8_t>(algorithm + 1);
  made.tactic.protocol = static_cast<uint8_t>(protocol + 1);
  made.tactic.channels = static_cast<uint16_t>(channels);
  return made;
}

// Ring and tree with all protocols; NVLS with simple.
constexpr float kTable[Tactic::kAlgorithms][Tactic::kProtocols] = {
    {3, 2, 9}, {5, 4, 2.5F}, {-1, -1, -1}, {-1, -1, -1}, {-1, -1, 6}, {-1, -1, -1}, {-1, -1, -1}};

TEST_CASE("costs: only what NCCL's table offers is possible, in tables of any shape") {
  const Costs costs(&kTable[0][0], Tactic::kAlgorithms, Tactic::kProtocols);
  CHECK(costs.possible({}));
  CHECK(costs.possible(resources(kRing, kLl, 8)));
  CHECK(costs.possible(resources(kNvls, kSimple)));
  CHECK_FALSE(costs.possible(resources(kNvls, kSimple, 8)));  // NCCL chooses its channels
  CHECK_FALSE(costs.possible(resources(kNvls, kLl)));
  CHECK_FALSE(costs.possible(resources(kPat, kSimple)));
  CHECK_FALSE(costs.possible(resources(kRing, -1)));
  CHECK_FALSE(costs.possible(resources(-1, kLl)));
  CHECK_FALSE(costs.possible(resources(-1, -1, 8)));
  CHECK_FALSE(costs.possible(resources(100, 100)));
  // NCCL 2.22 has six algorithms; a later version may have more algorithms and protocols.
  CHECK_FALSE(Costs(&kTable[0][0], 6, Tactic::kProtocols).possible(resources(kPat, kSimple)));
  constexpr float kWide[2][4] = {{1, -1, -1, 1}, {-1, -1, 1, 1}};
  const Costs wide(&kWide[0][0], 2, 4);
  CHECK(wide.possible(resources(kTree, kLl)));
  CHECK(wide.possible(resources(kRing, kSimple)));
  CHECK_FALSE(wide.possible(resources(kRing, kLl)));
}

TEST_CASE("costs: without a table only what every NCCL can run is possible") {
  CHECK(Costs::unknown(kAllReduce).possible(resources(kTree, kSimple, 4)));
  CHECK(Costs::unknown(kAllGather).possible(resources(kRing, kLl)));
  CHECK_FALSE(Costs::unknown(kAllGather).possible(resources(kTree, kLl)));
  CHECK_FALSE(Costs::unknown(kAllReduce).possible(resources(kRing, kLl128)));
  CHECK_FALSE(Costs::unknown(kAllReduce).possible(resources(kNvls, kSimple)));
}

TEST_CASE("costs: the space starts with NCCL's choice, then by cost; hopeless pairs are left out") {
  const auto space =
      Costs(&kTable[0][0], Tactic::kAlgorithms, Tactic::kProtocols).space(uint64_t{1} << 20U);
  REQUIRE(space.size() == 7);  // all but tree with simple, which is 4.5 times as slow
  CHECK(space[0].start == tune::vendor_setting({}));
  CHECK(space[0].axes.empty());
  CHECK(space[1].start == tune::vendor_setting(resources(kTree, kLl128, 4)));
  CHECK(space[1].axes.size() == 1);
  CHECK(space[2].start == tune::vendor_setting(resources(kRing, kSimple, 4)));
  CHECK(space[6].start == tune::vendor_setting(resources(kNvls, kSimple)));
  CHECK(space[6].axes.empty());
  CHECK(tune::size_of(space) == 1 + 5 * 6 + 1);
  for (const auto& subspace : space) CHECK(tune::setting_from_json(to_json(subspace.start)));
}

}  // namespace
}  // namespace hetccl::nccl_tuner
