// The verifier over random topologies: every plan of every planner must pass, and must move exactly
// the least bytes between clusters.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "golden/random_topology.h"
#include "plan/call.h"
#include "plan/planner.h"
#include "verify/verify.h"

namespace hetccl::plan {
namespace {

using verify::verify;
using VerifyOptions = verify::Options;
using verify::Verified;

// Sanitizers slow the verifier down tenfold, and see the same of it in a few cases.
#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kCases = 1000;
#else
constexpr uint64_t kCases = 50'000;
#endif

uint64_t scale() {
  const char* text = std::getenv("HETCCL_TEST_SCALE");
  return text == nullptr ? 1 : static_cast<uint64_t>(std::max(1, std::atoi(text)));
}

std::vector<RankPlan> plan_all(const Spec& spec, const topology::Topology& topology) {
  std::vector<RankPlan> plans;
  for (int rank = 0; rank < topology.n_ranks(); ++rank) {
    Result<RankPlan> one = plan(rank, spec, topology);
    REQUIRE_MESSAGE(one.ok(), one.status().message());
    plans.push_back(std::move(one).value());
  }
  return plans;
}

Spec random_spec(std::mt19937_64& random, const topology::Topology& topology) {
  Spec spec;
  spec.collective =
      static_cast<Collective>(random() % static_cast<uint64_t>(Collective::PointToPoint));
  if (is_rooted(spec.collective)) {
    spec.root = static_cast<int>(random() % static_cast<uint64_t>(topology.n_ranks()));
  }
  const uint64_t how = random() % 4;
  spec.average = reduces(spec.collective) && how == 0;
  spec.scale = reduces(spec.collective) && how == 1;
  if (random() % 2 == 0) spec.shape = Shape::Latency;
  return spec;
}

VerifyOptions random_options(std::mt19937_64& random) {
  constexpr uint64_t kCounts[] = {0, 1, 7, 64, 1000, 4097, 1'000'003};
  constexpr DataType kTypes[] = {DataType::Int8, DataType::BFloat16, DataType::Float32,
                                 DataType::Float64};
  VerifyOptions options;
  options.depth = static_cast<uint32_t>(random() % 9);
  options.count = kCounts[random() % std::size(kCounts)];
  options.type = kTypes[random() % std::size(kTypes)];
  options.slice_bytes = 64 * (1 + random() % 40);
  return options;
}

// In one hop every cluster's part goes to every other, where two hops would add them up between.
uint64_t bytes_of(const Spec& spec, const topology::Topology& topology,
                  const VerifyOptions& options) {
  const uint64_t least = least_bytes(spec, topology, options.count, options.type);
  const bool one_hop = spec.collective == Collective::AllReduce && spec.shape == Shape::Latency &&
                       topology.kernels_everywhere();
  return one_hop ? least * topology.clusters().size() / 2 : least;
}

// Init makes the channels of all plans but those whose blocks go straight from rank to rank, or
// from a root in one hop.
void check_peers(const Spec& spec, const std::vector<RankPlan>& plans,
                 const topology::Topology& topology) {
  const bool one_hop = spec.shape == Shape::Latency && is_rooted(spec.collective);
  if (spec.collective >= Collective::Gather || one_hop) return;
  for (int rank = 0; rank < topology.n_ranks(); ++rank) {
    const std::vector<int> allowed = peers(rank, topology);
    for (const Step& step : plans[static_cast<size_t>(rank)].steps) {
      if (step.peer >= 0) CHECK(std::binary_search(allowed.begin(), allowed.end(), step.peer));
    }
  }
}

// What exec says of shards (ccl::Shard::follows): all ranks have them in the same buffer, where the
// step does not say otherwise.
void check_shards(const std::vector<RankPlan>& plans) {
  for (const RankPlan& plan : plans) {
    for (const Step& step : plan.steps) {
      for (const ShardRegion& shard : step.shards) {
        if (step.kind == StepKind::CclReduce && !step.apart)
          CHECK(shard.send.buffer == Buffer::Input);
        if (step.kind == StepKind::CclBroadcast && shard.receiver < 0)
          CHECK(shard.recv.buffer == Buffer::Output);
      }
    }
  }
}

TEST_CASE("plans of random topologies pass the verifier and move the least bytes") {
  const uint64_t n_cases = kCases * scale();
  for (uint64_t seed = 0; seed < n_cases; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const topology::Topology topology = test::random_topology(random);
    const Spec spec = random_spec(random, topology);
    const VerifyOptions options = random_options(random);
    const std::vector<RankPlan> plans = plan_all(spec, topology);
    const Result<Verified> verified = verify(spec, topology, plans, options);
    REQUIRE_MESSAGE(verified.ok(), name_of(spec.collective), ": ", verified.status().message(),
                    "\n", topology.to_json());
    CHECK(verified.value().cross_bytes == bytes_of(spec, topology, options));
    if (seed % 16 == 0) check_peers(spec, plans, topology);
    if (seed % 16 == 0) check_shards(plans);
  }
}

TEST_CASE("reductions to every root, plain, averaged and scaled, in all small layouts") {
  for (const char* layout : {"A", "AA", "AB", "AAB", "ABB", "ABAB", "ABC", "AABBC", "ABCA"}) {
    const topology::Topology topology = test::layout_topology(layout);
    for (int root = 0; root < topology.n_ranks(); ++root) {
      for (const int how : {0, 1, 2}) {
        CAPTURE(layout);
        CAPTURE(root);
        const Spec spec{Collective::Reduce, root, how == 1, how == 2};
        const Result<Verified> verified = verify(spec, topology, plan_all(spec, topology));
        REQUIRE_MESSAGE(verified.ok(), verified.status().message());
        CHECK(verified.value().cross_bytes == least_bytes(spec, topology, 1000, DataType::Float32));
      }
    }
  }
}

TEST_CASE("devices add up for hosts beside them, in all small layouts") {
  for (const char* layout : {"AB", "AAB", "ABB", "AABB", "ABAB", "AABBB", "AAAABB", "ABBAB"}) {
    for (const char host : {'A', 'B'}) {
      std::vector<topology::RankInfo> infos = test::layout_topology(layout).infos();
      for (auto& info : infos) info.host_access = info.host == std::string(1, host);
      const topology::Topology topology = topology::Topology::build(std::move(infos)).value();
      for (const Shape shape : {Shape::Bandwidth, Shape::Latency}) {
        for (const int how : {0, 1, 2}) {
          CAPTURE(layout);
          CAPTURE(host);
          const Spec spec{Collective::AllReduce, 0, how == 1, how == 2, shape};
          const std::vector<RankPlan> plans = plan_all(spec, topology);
          CHECK(plans[0].name == (shape == Shape::Latency ? "exchange" : "owner"));
          const Result<Verified> verified = verify(spec, topology, plans);
          REQUIRE_MESSAGE(verified.ok(), verified.status().message());
          CHECK(verified.value().cross_bytes ==
                least_bytes(spec, topology, 1000, DataType::Float32));
        }
      }
    }
  }
}

TEST_CASE("more clusters than one reduction has sources") {
  for (size_t n_clusters : {16, 17, 18, 33}) {
    std::vector<topology::RankInfo> infos;
    for (int rank = 0; rank < static_cast<int>(n_clusters) + 3; ++rank) {
      const int host = rank % static_cast<int>(n_clusters);
      infos.push_back(test::rank_info(rank, std::to_string(host), ""));
    }
    const topology::Topology topology = topology::Topology::build(std::move(infos)).value();
    for (Collective collective :
         {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather,
          Collective::Broadcast, Collective::Reduce, Collective::Barrier}) {
      const Spec spec{collective, 5, collective == Collective::AllReduce,
                      collective == Collective::ReduceScatter};
      const Result<Verified> verified = verify(spec, topology, plan_all(spec, topology));
      CHECK_MESSAGE(verified.ok(), verified.status().message());
    }
  }
}

}  // namespace
}  // namespace hetccl::plan
