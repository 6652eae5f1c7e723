#include "tune/space.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "fake/sample.h"
#include "golden/random_topology.h"
#include "plan/planner.h"
#include "tune/chooser.h"
#include "verify/verify.h"

namespace hetccl::tune {
namespace {

constexpr uint64_t kCollectives = 9;  // without messages

TEST_CASE("space: each parameter has its row, its name, and what it takes") {
  for (const ParameterRow& row : parameters()) {
    CHECK(&row_of(row.parameter) == &row);
    CHECK(!row.help.empty());
    CHECK(row.least <= row.most);
  }
}

TEST_CASE("space: settings survive JSON") {
  const Setting setting{"ring", {.slice_bytes = 4096, .depth = 7}, {.tcp_streams = 3}};
  CHECK(setting_from_json(to_json(setting)) == setting);
  CHECK(text_of(setting) == "ring, slice_bytes 4 KiB, depth 7, tcp_streams 3");
}

TEST_CASE("space: it starts with what the chooser says; its points are settings of their own") {
  std::mt19937_64 random(4);
  for (int i = 0; i < 200; ++i) {
    const topology::Topology topology = test::random_topology(random);
    Chooser chooser(topology, {});
    const plan::Spec spec{.collective = static_cast<Collective>(random() % kCollectives)};
    const uint64_t count = uint64_t{1} << (random() % 27);
    const Limits limits{.tcp_streams = 4, .gpu_blocks = 8};
    const Space space = chooser.space(spec, count, DataType::Float32, limits);
    if (space.empty()) continue;
    const Candidate best = chooser.choose(spec, count, DataType::Float32);
    CHECK(space.front().start.algorithm == best.algorithm);
    CHECK(space.front().start.choice == best.choice);
    for (size_t s = 0; s < space.size(); ++s) {
      CHECK(setting_at(space, start_of(space, s)) == space[s].start);
      CHECK(find_point(space, space[s].start) == start_of(space, s));
      for (const Axis& axis : space[s].axes) {
        const ParameterRow& row = row_of(axis.parameter);
        CHECK(std::is_sorted(axis.values.begin(), axis.values.end()));
        CHECK(axis.values.front() >= row.least);
        CHECK(axis.values.back() <= row.most);
      }
    }
  }
}

TEST_CASE("space: where bits are kept, sums keep their algorithm and their slices") {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100; ++i) {
    const topology::Topology topology = test::random_topology(random);
    Chooser chooser(topology, {});
    for (const Collective collective : {Collective::AllReduce, Collective::ReduceScatter}) {
      const Space space = chooser.space({.collective = collective}, 1 << 20, DataType::Float32,
                                        {.tcp_streams = 4, .keep_bits = true});
      if (space.empty()) continue;
      REQUIRE(space.size() == 1);
      for (const Axis& axis : space.front().axes) CHECK(axis.parameter != Parameter::SliceBytes);
    }
  }
}

TEST_CASE(
    "space: clusters whose libraries can be told may spend fewer channels, as the last choice") {
  std::mt19937_64 random(8);
  Tactics tactics;
  tactics.add(LibraryCall::AllReduce, Tactic::kRing, Tactic::kSimple);
  for (int i = 0; i < 100; ++i) {
    const topology::Topology topology = test::random_topology(random);
    if (topology.clusters().size() < 2) continue;
    Chooser chooser(topology, {});
    const auto space = [&](Collective collective, uint64_t count, Limits limits) {
      limits.tcp_streams = 4;
      return chooser.space({.collective = collective}, count, DataType::Float32, limits);
    };
    const Space told = space(Collective::AllReduce, 1 << 20, {.tactics = tactics});
    const Space alone = space(Collective::AllReduce, 1 << 20, {});
    REQUIRE(told.size() == alone.size() + 1);
    CHECK(told.front().start == alone.front().start);
    CHECK(told.back().start.algorithm == told.front().start.algorithm);
    CHECK(told.back().start.resources.tactic == Tactic{0, 0, 16});
    CHECK(told.back().axes.back().parameter == Parameter::NcclChannels);
    CHECK(find_point(told, told.back().start) == start_of(told, told.size() - 1));
    CHECK(find_point(told, told.front().start) == start_of(told, 0));
    const auto as_alone = [&](Collective collective, uint64_t count, bool keep) {
      return space(collective, count, {.tactics = tactics, .keep_bits = keep}).size() ==
             space(collective, count, {.keep_bits = keep}).size();
    };
    CHECK(as_alone(Collective::AllReduce, 1 << 20, true));
    CHECK(as_alone(Collective::AllReduce, 1 << 10, false));
    CHECK(as_alone(Collective::AllToAll, 1 << 20, false));
  }
}

// Everything that the search tries runs on every rank.
TEST_CASE("space: the verifier accepts random points of random topologies") {
#if defined(HETCCL_UNDER_ASAN)  // it slows the verifier down tenfold
  constexpr uint64_t kOneIn = 2;
#else
  constexpr uint64_t kOneIn = 1;
#endif
  size_t verified = 0;
  const std::vector<uint64_t> seeds = fake::sampled_seeds(100, kOneIn);
  for (const uint64_t seed : seeds) {
    std::mt19937_64 random(seed);
    const topology::Topology topology = test::random_topology(random);
    Chooser chooser(topology, {});
    plan::Spec spec{.collective = static_cast<Collective>(random() % kCollectives)};
    const uint64_t count = 5000 + random() % 100'000;
    const Space space = chooser.space(spec, count, DataType::Float32, {});
    if (space.empty()) continue;
    Point point{random() % space.size(), {}};
    for (const Axis& axis : space[point.subspace].axes)
      point.at.push_back(random() % axis.values.size());
    const Setting setting = setting_at(space, point);
    spec.algorithm = setting.algorithm;
    std::vector<plan::RankPlan> plans;
    for (int rank = 0; rank < topology.n_ranks(); ++rank) {
      auto plan = plan::plan(rank, spec, topology);
      REQUIRE(plan.ok());
      plans.push_back(std::move(plan).value());
    }
    CAPTURE(text_of(setting));
    verify::Options options;
    options.depth = setting.choice.depth;
    options.count = count;
    options.slice_bytes = setting.choice.slice_bytes;
    const auto result = verify::verify(spec, topology, plans, options);
    CAPTURE(result.status().message());
    CHECK(result.ok());
    ++verified;
  }
  CHECK(verified > (seeds.size() < 100 ? 0U : 40U));  // other spaces are empty
}

}  // namespace
}  // namespace hetccl::tune
