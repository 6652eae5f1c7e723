// Rings in which few messages fit: senders wait for credit, and some would wait for ever.
#include <doctest/doctest.h>

#include "golden/random_call.h"
#include "verify/testing.h"

namespace hetccl::verify {
namespace {

using lower::Ring;
using testing::check_fault;
using testing::fault;

/// Clusters on one host: A on devices; the other ranks share windows with A's.
topology::Topology on_one_host(const char* layout) {
  std::vector<topology::RankInfo> infos = test::layout_topology(layout).infos();
  for (topology::RankInfo& info : infos) {
    info.label = info.host;
    info.host_access = info.label != "A";
    info.host = "one";
    info.window_bytes = 16 << 20;
  }
  return topology::Topology::build(std::move(infos)).value();
}

const Options kManySlices{.depth = 6, .count = 100'000, .slice_bytes = 4096};

void set_rings(Lowered& lowered, size_t bytes) {
  for (lower::Target& target : lowered.problem.targets) {
    for (lower::Reach& lane : target.lanes) lane.ring_bytes = bytes;
  }
}

}  // namespace

TEST_CASE("the smallest rings for the same Code") {
  const topology::Topology topology = on_one_host("ABC");
  for (const Collective collective : {Collective::AllReduce, Collective::ReduceScatter}) {
    const plan::Spec spec{collective};
    const auto plans = test::plan_all(spec, topology);
    const Lowered large = lower_all(spec, topology, plans, kManySlices).value();
    Lowered small = large;
    shrink_rings(small, plans, kManySlices);
    const size_t bytes = small.problem.targets[0].lanes[0].ring_bytes;
    CHECK(bytes > 0);
    CHECK(bytes < large.problem.targets[0].lanes[0].ring_bytes);
    CHECK(fault(small) == "none");
    Options options = kManySlices;
    options.most_ring_bytes = bytes;
    const Lowered same = lower_all(spec, topology, plans, options).value();
    options.most_ring_bytes = bytes - Ring::kGrain;
    const Lowered other = lower_all(spec, topology, plans, options).value();
    CHECK(same.problem.geometries[0].lanes[0] == large.problem.geometries[0].lanes[0]);
    CHECK(fault(other) == "none");
  }
}

TEST_CASE("a reader in place that starts later than the ring keeps messages") {
  const topology::Topology topology = on_one_host("AB");
  const plan::Spec spec{Collective::ReduceScatter};
  const auto plans = test::plan_all(spec, topology);
  Lowered large = lower_all(spec, topology, plans, kManySlices).value();
  CHECK(fault(large) == "none");
  Options options = kManySlices;
  options.most_ring_bytes = 4 * kManySlices.slice_bytes;
  const Lowered small = lower_all(spec, topology, plans, options).value();
  CHECK(fault(small) == "none");
  // Uses the Code for the large ring, whose messages fit into the small one too.
  for (size_t rank : {0, 1}) {
    CHECK(small.problem.geometries[rank].lanes[0].recv_in_ring);
    CHECK(large.problem.geometries[rank].lanes[0].recv_in_ring);
  }
  set_rings(large, options.most_ring_bytes);
  check_fault(fault(large), "deadlock: rank 0, step 0 (reserve) never completes in slice 2");
}

TEST_CASE("a ring too small for what its Code sends ahead") {
  const topology::Topology topology = on_one_host("ABC");
  const plan::Spec spec{Collective::ReduceScatter};
  const auto plans = test::plan_all(spec, topology);
  Lowered lowered = lower_all(spec, topology, plans, kManySlices).value();
  shrink_rings(lowered, plans, kManySlices);
  CHECK(fault(lowered) == "none");
  set_rings(lowered, 2 * kManySlices.slice_bytes);
  check_fault(fault(lowered), "(reserve) never completes");
}

TEST_CASE("calls whose targets have different windows are no calls of one communicator") {
  const topology::Topology topology = on_one_host("AABBB");
  const plan::Spec spec{Collective::AllToAll};
  const auto plans = test::plan_all(spec, topology);
  const Lowered with = lower_all(spec, topology, plans, kManySlices).value();
  Lowered without = with;
  set_rings(without, 0);
  const Flight both[] = {{&with}, {&without}};
  check_fault(check_together(both, {}).message(), "calls find different windows");
}

}  // namespace hetccl::verify
