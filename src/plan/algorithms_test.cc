#include "plan/algorithms.h"

#include <doctest/doctest.h>

#include <set>

#include "golden/random_topology.h"
#include "plan/planner.h"

namespace hetccl::plan {
namespace {

constexpr auto kEnd = static_cast<uint8_t>(Collective::PointToPoint);

std::string ids(const Spec& spec, const topology::Topology& topology) {
  std::string text;
  for (const Algorithm* row : find_algorithms(spec, topology)) text += std::string(row->id) + " ";
  return text;
}

TEST_CASE("an id names one row of a collective") {
  for (uint8_t value = 0; value < kEnd; ++value) {
    std::set<std::string_view> known;
    for (const Algorithm& row : algorithms()) {
      CHECK(row.collectives.bits != 0);
      if (!row.collectives.contain(static_cast<Collective>(value))) continue;
      CHECK(known.insert(row.id).second);
    }
  }
}

TEST_CASE("every collective has an algorithm over any topology") {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    std::mt19937_64 random(seed);
    const topology::Topology topology = test::random_topology(random);
    for (uint8_t value = 0; value < kEnd; ++value)
      CHECK_FALSE(find_algorithms({static_cast<Collective>(value)}, topology).empty());
  }
}

TEST_CASE("which algorithms apply, the default first") {
  const Spec all_reduce{Collective::AllReduce}, broadcast{Collective::Broadcast};
  CHECK(ids(all_reduce, test::layout_topology("AA")) == "vendor ");
  CHECK(ids(all_reduce, test::layout_topology("AB")) == "exchange ");
  CHECK(ids(all_reduce, test::layout_topology("ABC")) == "owner exchange ");
  CHECK(ids(broadcast, test::layout_topology("AB")) == "chain ");
  CHECK(ids(broadcast, test::layout_topology("ABC")) == "chain star ");
  for (const Collective pairwise :
       {Collective::AllToAll, Collective::Gather, Collective::Scatter}) {
    CHECK(ids({pairwise}, test::layout_topology("A")) == "vendor ");
    CHECK(ids({pairwise}, test::layout_topology("AA")) == "vendor ");
    CHECK(ids({pairwise}, test::layout_topology("AAB")) == "direct ");
  }
  const Spec all_to_all{Collective::AllToAll};
  CHECK(ids(all_to_all, test::layout_topology("AAABBC")) == "direct gathered ");
  CHECK(ids({Collective::Gather}, test::layout_topology("AAABBC")) == "direct ");
  CHECK(ids({.collective = Collective::AllToAll, .uneven = true},
            test::layout_topology("AAABBC")) == "direct ");
  std::vector<topology::RankInfo> three = test::layout_topology("AAABBC").infos();
  three[5].library_exchanges = false;  // a cluster of its own
  CHECK(ids(all_to_all, topology::Topology::build(three).value()) == "direct gathered ");
  three[4].library_exchanges = false;
  CHECK(ids(all_to_all, topology::Topology::build(three).value()) == "direct ");
  std::vector<topology::RankInfo> pair = test::layout_topology("AA").infos();
  pair[1].library_exchanges = false;
  CHECK(ids({Collective::AllToAll}, topology::Topology::build(pair).value()) == "direct ");
  std::vector<topology::RankInfo> infos = test::layout_topology("AB").infos();
  infos[0].host_access = false;
  CHECK(ids(all_reduce, topology::Topology::build(infos).value()) == "owner exchange ");
  infos[0].kernels = false;
  CHECK(ids(all_reduce, topology::Topology::build(infos).value()) == "owner ");
}

TEST_CASE(
    "a plan has its algorithm's name; one that does not apply is refused with those that do") {
  const topology::Topology topology = test::layout_topology("ABC");
  const auto made = [&](std::string_view algorithm) {
    return plan(0, {.collective = Collective::AllReduce, .algorithm = algorithm}, topology);
  };
  CHECK(made("").value().name == "owner");
  CHECK(made("exchange").value().name == "exchange");
  for (const std::string_view id : {"vendor", "ring", "no such"}) {
    CHECK(made(id).status().code() == ErrorCode::InvalidArgument);
    CHECK(made(id).status().message() ==
          "the algorithm \"" + std::string(id) +
              "\" does not apply to all_reduce over 3 clusters: name one of owner, exchange, or "
              "none for the first of them");
  }
  const Status none = plan(0, {Collective::PointToPoint}, topology).status();
  CHECK(none.code() == ErrorCode::InvalidArgument);
  CHECK_MESSAGE(none.message().starts_with("no algorithm plans send/recv"), none.message());
}

}  // namespace
}  // namespace hetccl::plan
