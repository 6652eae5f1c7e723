// Mutation test of the verifier: of Code with one mistake it rejects 99 % at least. Code that it
// would accept without an instruction has one too many.
#include <doctest/doctest.h>

#include <cstdlib>

#include "fake/sample.h"
#include "golden/random_topology.h"
#include "plan/algorithms.h"
#include "plan/planner.h"
#include "verify/mutate.h"
#include "verify/verify.h"

namespace hetccl::verify {
namespace {

constexpr uint64_t kTopologies = 500;

struct Sum {
  uint64_t made = 0, rejected = 0;
  std::vector<std::string> survivors{};
  void add(const MutationReport& report, const std::string& where) {
    made += report.made;
    rejected += report.rejected;
    for (const std::string& one : report.survivors) survivors.push_back(where + ": " + one);
  }
  void check(double least) const {
    MESSAGE(made << " mutants, " << rejected << " rejected, " << survivors.size() << " survive");
    const char* list = std::getenv("HETCCL_LIST_SURVIVORS");
    for (const std::string& one : survivors) {
      if (list != nullptr) MESSAGE(one);
    }
    CHECK(static_cast<double>(rejected) >= least * static_cast<double>(made));
  }
};

void try_all(Sum& sum, const plan::Spec& spec, const topology::Topology& topology,
             const Options& options, uint64_t n, uint64_t seed) {
  std::vector<plan::RankPlan> plans;
  for (int rank = 0; rank < topology.n_ranks(); ++rank) {
    plans.push_back(plan::plan(rank, spec, topology).value());
  }
  const Result<Lowered> lowered = lower_all(spec, topology, plans, options);
  REQUIRE_MESSAGE(lowered.ok(), lowered.status().message());
  const Status status = check_code(lowered.value().problem, lowered.value().codes);
  REQUIRE_MESSAGE(status.ok(), status.message());
  sum.add(try_mutants(lowered.value().problem, lowered.value().codes, n, seed),
          std::string(name_of(spec.collective)) + " " + plans[0].name + ", seed " +
              std::to_string(seed));
}

TEST_CASE("mutants of the golden topologies' Code are rejected") {
  Sum sum;
  for (const char* layout : {"AA", "AB", "AAB", "AABB", "ABAB", "ABC", "AABBC"}) {
    for (const bool on_devices : {false, true}) {
      std::vector<topology::RankInfo> infos = test::layout_topology(layout).infos();
      for (topology::RankInfo& info : infos) info.host_access = !on_devices;
      const topology::Topology topology = topology::Topology::build(std::move(infos)).value();
      for (const Collective collective :
           {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather,
            Collective::Broadcast, Collective::Reduce, Collective::Gather, Collective::Scatter,
            Collective::AllToAll, Collective::Barrier}) {
        for (uint64_t count : {uint64_t{40}, uint64_t{2000}}) {
          if (collective == Collective::Barrier) count = 0;
          try_all(sum, {.collective = collective}, topology, {.count = count}, 60, count);
        }
      }
    }
  }
  sum.check(0.99);
}

TEST_CASE("mutants of encoded collectives are rejected") {
  Sum sum;
  for (const char* layout : {"AA", "AAA", "AB", "AAB", "AABB", "ABC", "AABBC"}) {
    for (const bool on_devices : {false, true}) {
      std::vector<topology::RankInfo> infos = test::layout_topology(layout).infos();
      for (topology::RankInfo& info : infos) info.host_access = !on_devices;
      const topology::Topology topology = topology::Topology::build(std::move(infos)).value();
      for (const Collective collective :
           {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather}) {
        plan::Spec spec{.collective = collective, .encoding = {Format::Int8, 32}};
        for (const plan::Algorithm* row : plan::find_algorithms(spec, topology)) {
          spec.algorithm = row->id;
          for (const uint64_t count : {uint64_t{40}, uint64_t{2000}}) {
            try_all(sum, spec, topology, {.count = count}, 40, count);
          }
        }
      }
    }
  }
  sum.check(0.99);
}

TEST_CASE("mutants of gathered all-to-alls are rejected") {
  Sum sum;
  for (const char* layout : {"AAABB", "AAABBBC", "ABABAB"}) {
    for (const bool on_devices : {false, true}) {
      std::vector<topology::RankInfo> infos = test::layout_topology(layout).infos();
      for (topology::RankInfo& info : infos) info.host_access = !on_devices;
      const topology::Topology topology = topology::Topology::build(std::move(infos)).value();
      const plan::Spec spec{.collective = Collective::AllToAll, .algorithm = "gathered"};
      for (const uint64_t count : {40, 2000})
        try_all(sum, spec, topology, {.count = count}, 200, 1);
    }
  }
  sum.check(0.99);
}

TEST_CASE("mutants of random topologies' Code are rejected") {
  Sum sum;
  for (const uint64_t seed : fake::sampled_seeds(kTopologies, 3)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const topology::Topology topology = test::random_topology(random);
    plan::Spec spec;
    spec.collective =
        static_cast<Collective>(random() % static_cast<uint64_t>(Collective::PointToPoint));
    const auto rows = plan::find_algorithms(spec, topology);
    spec.algorithm = rows[random() % rows.size()]->id;
    constexpr uint64_t kCounts[] = {1, 64, 1000, 4097, 100'003};
    const Options options{.depth = static_cast<uint32_t>(1 + random() % 5),
                          .count = spec.collective == Collective::Barrier
                                       ? 0
                                       : kCounts[random() % std::size(kCounts)],
                          .slice_bytes = 64 * (1 + random() % 40)};
    try_all(sum, spec, topology, options, 20, seed);
  }
  sum.check(0.99);
}

}  // namespace
}  // namespace hetccl::verify
