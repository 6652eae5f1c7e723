#include "tune/probes.h"

#include <doctest/doctest.h>

#include "golden/random_topology.h"

namespace hetccl::tune {
namespace {

TEST_CASE("one link of each class is measured, or all") {
  const topology::Topology topology = test::layout_topology("ABAC");
  const auto first = links_to_measure(topology, false), all = links_to_measure(topology, true);
  REQUIRE(first.size() == 1);
  CHECK(first[0].a == 0);
  CHECK(first[0].b == 1);
  REQUIRE(all.size() == 3);
  for (const LinkToMeasure& link : all) {
    CHECK(link.a < link.b);
    CHECK(topology.cluster_of(link.rank_a) == link.a);
    CHECK(topology.cluster_of(link.rank_b) == link.b);
  }
}

}  // namespace
}  // namespace hetccl::tune
