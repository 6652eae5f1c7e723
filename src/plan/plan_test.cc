#include "plan/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "golden/random_topology.h"
#include "plan/call.h"
#include "plan/cut.h"
#include "plan/planner.h"
#include "plan/schedule.h"
#include "plan/traffic.h"

namespace hetccl::plan {
namespace {

TEST_CASE("fractions compare by value") {
  CHECK(Fraction{1, 2} == Fraction{2, 4});
  CHECK(Fraction{1, 3} < Fraction{1, 2});
  CHECK_FALSE(Fraction{2, 4} < Fraction{1, 2});
  CHECK(Fraction{4'294'967'294U, 4'294'967'295U} < Fraction{1, 1});
}

TEST_CASE("elements: whole grains inside, the length itself at the end") {
  CHECK(element({0, 1}, 1000, 16) == 0);
  CHECK(element({1, 2}, 1000, 16) == 496);
  CHECK(element({7, 7}, 1000, 16) == 1000);
  CHECK(element({1, 2}, 15, 16) == 0);
  CHECK(element({1, 2}, 0, 16) == 0);
  const uint64_t huge = ~uint64_t{0};
  CHECK(element({4'294'967'294U, 4'294'967'295U}, huge, 1) == huge - huge / 4'294'967'295U);
  CHECK(grain_of(DataType::Int8) == 64);
  CHECK(grain_of(DataType::Float64) == 8);
}

TEST_CASE("elements are monotonic and depend on the fraction's value alone") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    const auto den_a = static_cast<uint32_t>(1 + random() % 100);
    const auto den_b = static_cast<uint32_t>(1 + random() % 100);
    const Fraction a{static_cast<uint32_t>(random() % (den_a + 1)), den_a};
    const Fraction b{static_cast<uint32_t>(random() % (den_b + 1)), den_b};
    const uint64_t length = random() >> (random() % 64), grain = uint64_t{1} << random() % 7;
    if (a < b) CHECK(element(a, length, grain) <= element(b, length, grain));
    CHECK(element({a.num * 3, a.den * 3}, length, grain) == element(a, length, grain));
  }
}

TEST_CASE("a line is cut in proportion to the shares, without gaps") {
  const uint32_t blocks[] = {4, 7}, shares[] = {1, 2, 1};
  const Cut cut = cut_line(blocks, shares);
  REQUIRE(cut.size() == 4);
  CHECK((cut[0].holder == 0 && cut[0].piece.block == 4 && cut[0].piece.end == Fraction{1, 2}));
  CHECK((cut[1].holder == 1 && cut[1].piece.block == 4 && cut[1].piece.begin == Fraction{1, 2}));
  CHECK((cut[2].holder == 1 && cut[2].piece.block == 7 && cut[2].piece.end == Fraction{1, 2}));
  CHECK((cut[3].holder == 2 && cut[3].piece.block == 7 && cut[3].piece.end == Fraction{1, 1}));
}

TEST_CASE("two cuts laid over each other cover the line once") {
  const uint32_t blocks[] = {0, 1, 2}, shares_a[] = {3, 5}, shares_b[] = {1, 1, 7, 2};
  const Cut a = cut_line(blocks, shares_a), b = cut_line(blocks, shares_b);
  Fraction at{0, 1};
  uint32_t block = 0;
  for (const Overlap& o : overlay(a, b)) {
    if (at == Fraction{1, 1}) at = {0, 1}, ++block;
    CHECK(o.piece.block == block);
    CHECK(o.piece.begin == at);
    CHECK(o.piece.begin < o.piece.end);
    CHECK_FALSE(a[o.a_index].piece.end < o.piece.end);
    CHECK_FALSE(b[o.b_index].piece.end < o.piece.end);
    at = o.piece.end;
  }
  CHECK(block == 2);
  CHECK(at == Fraction{1, 1});
}

TEST_CASE("the schedule: the last stage starts depth slices behind the first") {
  RankPlan plan;
  plan.stages = 3;
  CHECK(lag(0, 3, 3) == 0);
  CHECK(lag(1, 3, 3) == 1);
  CHECK(lag(2, 3, 3) == 3);
  CHECK(slots(plan, 3, 100) == 4);
  CHECK(slots(plan, 3, 2) == 2);
  CHECK(slots(plan, 3, 0) == 1);
}

// A host rank, then two GPUs.
std::vector<topology::RankInfo> host_and_gpus() {
  std::vector<topology::RankInfo> infos(3);
  for (int r = 0; r < 3; ++r) {
    topology::RankInfo& info = infos[static_cast<size_t>(r)];
    info.rank = r;
    info.vendor = r == 0 ? "host" : "cuda";
    info.library = r == 0 ? "host" : "nccl";
    if (r == 0) continue;
    info.library_version = "2.21.5";
    info.library_reduces = ReductionSet::where(
        [](DataType type, RedOp op) { return !is_bitwise(op) && type < DataType::Float8E4m3; });
  }
  return infos;
}

Status check_call(Collective collective, DataType type, RedOp op,
                  std::vector<topology::RankInfo> infos) {
  return check_support({collective, type, op, 0, 8},
                       topology::Topology::build(std::move(infos)).value());
}

TEST_CASE("what a library cannot reduce is refused where it joins ranks") {
  auto infos = host_and_gpus();
  const auto refused = [&](DataType type, RedOp op) {
    return check_call(Collective::AllReduce, type, op, infos);
  };
  CHECK(refused(DataType::Int32, RedOp::Bor).message() ==
        "rank 1 cannot reduce int32 by bor: its cluster reduces by nccl 2.21.5, which lacks this: "
        "use another type or operator, or host memory, or give each rank its own HETCCL_CLUSTER");
  CHECK(refused(DataType::Int32, RedOp::Bor).code() == ErrorCode::Unsupported);
  CHECK_FALSE(refused(DataType::Int16, RedOp::Sum).ok());
  CHECK_FALSE(refused(DataType::Float8E4m3, RedOp::Avg).ok());
  CHECK(refused(DataType::Int32, RedOp::Max).ok());
  for (const Collective moves :
       {Collective::AllGather, Collective::Broadcast, Collective::AllToAll, Collective::Barrier}) {
    CHECK(check_call(moves, DataType::Int16, RedOp::Bor, infos).ok());
  }
  for (auto& info : infos) info.architecture = "gfx1100";
  CHECK(refused(DataType::Float8E4m3, RedOp::Sum).message().find("lacks this on gfx1100: use") !=
        std::string::npos);
  infos[2].label = "alone";  // then kernels reduce, not the library
  CHECK(refused(DataType::Int16, RedOp::Bor).ok());
}

TEST_CASE("a library that does not send gathers nothing at a root") {
  auto infos = host_and_gpus();
  infos[2].library_sends = false;
  const auto status_of = [&](Collective collective) {
    return check_call(collective, DataType::Float32, RedOp::Sum, infos);
  };
  CHECK(status_of(Collective::Reduce).code() == ErrorCode::Unsupported);
  CHECK(status_of(Collective::Reduce).message().starts_with("rank 2 cannot pass its part"));
  CHECK(status_of(Collective::AllReduce).ok());
  infos[2].label = "alone";
  CHECK(status_of(Collective::Reduce).ok());
}

TEST_CASE("a bitwise operator takes integers") {
  CHECK(check({Collective::AllReduce, DataType::Float64, RedOp::Band, 0, 1}, 3).code() ==
        ErrorCode::InvalidArgument);
}

TEST_CASE("a rank or root that does not exist is named") {
  const topology::Topology topology = test::layout_topology("AB");
  const Result<RankPlan> bad_root = plan(0, {Collective::Broadcast, 2}, topology);
  CHECK(bad_root.status().code() == ErrorCode::InvalidArgument);
  CHECK(bad_root.status().message().find("root 2") != std::string::npos);
  CHECK_FALSE(plan(0, {Collective::Broadcast, -1}, topology).ok());
  CHECK_FALSE(plan(0, {Collective::Reduce, 2}, topology).ok());
  CHECK_FALSE(plan(2, {Collective::AllReduce}, topology).ok());
}

TEST_CASE("of a call, the root and the operator decide the plan only where they matter") {
  const topology::Topology topology = test::layout_topology("AAAA");
  const auto spec = [&](Collective collective, RedOp op) {
    return spec_of({collective, DataType::Float32, op, 3, 100}, topology);
  };
  CHECK(spec(Collective::AllReduce, RedOp::Max) == Spec{Collective::AllReduce});
  CHECK(spec(Collective::AllReduce, RedOp::Avg) == Spec{Collective::AllReduce, 0, true});
  CHECK(spec(Collective::Reduce, RedOp::PreMulSum) == Spec{Collective::Reduce, 3, false, true});
  CHECK(spec(Collective::Broadcast, RedOp::Avg) == Spec{Collective::Broadcast, 3});
  const auto is_uneven = [&](Collective collective) {
    return spec_of({.collective = collective, .uneven = true}, topology).uneven;
  };
  CHECK(is_uneven(Collective::AllToAll));
  CHECK_FALSE(is_uneven(Collective::AllGather));  // all ranks know all lengths
}

TEST_CASE("a mean of floats over several clusters is scaled before it is added up") {
  const auto spec = [](const char* layout, DataType type, RedOp op) {
    return spec_of({Collective::AllReduce, type, op, 0, 100}, test::layout_topology(layout));
  };
  CHECK(spec("AABB", DataType::Float16, RedOp::Avg).scale);
  CHECK(spec("AABB", DataType::Float16, RedOp::Avg).average);
  CHECK_FALSE(spec("AABB", DataType::Float16, RedOp::Avg).scale_apart);
  CHECK_FALSE(spec("AABB", DataType::Float16, RedOp::Sum).scale);
  CHECK_FALSE(spec("AABB", DataType::Int32, RedOp::Avg).scale);
  CHECK_FALSE(spec("AAAA", DataType::Float16, RedOp::Avg).scale);  // the library's own average
  std::vector<topology::RankInfo> infos = host_and_gpus();
  for (topology::RankInfo& info : infos) {
    info.library_reduces =
        ReductionSet::where([](DataType, RedOp op) { return op != RedOp::PreMulSum; });
  }
  const auto topology = topology::Topology::build(std::move(infos)).value();
  const Signature call{Collective::AllReduce, DataType::Float16, RedOp::Avg, 0, 100};
  CHECK(spec_of(call, topology).scale_apart);
}

TEST_CASE("a rank alone multiplies by its factor in one step, however many pieces it sends") {
  const topology::Topology topology = test::layout_topology("ABC");
  const RankPlan made = plan(0, {Collective::AllReduce, 0, false, true}, topology).value();
  const auto scales = [](const Step& step) { return step.scale; };
  CHECK(std::count_if(made.steps.begin(), made.steps.end(), scales) == 1);
  CHECK(made.steps[0].scale);
  CHECK(made.steps[0].srcs[0].end == Fraction{1, 1});
}

std::vector<RankPlan> plan_all_to_all(const topology::Topology& topology,
                                      std::string_view algorithm) {
  std::vector<RankPlan> plans;
  const Spec spec{.collective = Collective::AllToAll, .algorithm = algorithm};
  for (int rank = 0; rank < topology.n_ranks(); ++rank)
    plans.push_back(plan(rank, spec, topology).value());
  return plans;
}

TEST_CASE("gathered, an all-to-all of 2 x 16 ranks has 32 messages between clusters, not 512") {
  const std::string layout = std::string(16, 'A') + std::string(16, 'B');
  const topology::Topology topology = test::layout_topology(layout);
  for (const bool gathered : {false, true}) {
    const auto plans = plan_all_to_all(topology, gathered ? "gathered" : "direct");
    uint64_t messages = 0, bytes = 0;
    for (const Traffic& pair : traffic(topology, plans, 1000, DataType::Int32, 1024)) {
      messages += pair.messages;
      bytes += pair.bytes;
    }
    CHECK(messages == (gathered ? 32 : 512));
    CHECK(bytes == least_bytes({Collective::AllToAll}, topology, 1000, DataType::Int32));
  }
}

TEST_CASE("a rank's messages are spread over its cards in proportion to their rates") {
  auto infos = test::layout_topology("AABB").infos();
  for (auto& info : infos) info.nics = {{"x", "", 3000, 0}, {"y", "", 1000, 0}};
  const auto topology = topology::Topology::build(std::move(infos)).value();
  const auto plans = plan_all_to_all(topology, "direct");
  const auto loads = card_loads(topology, plans, 1000, DataType::Int32, 1024);
  REQUIRE(loads.size() == 4);
  CHECK(loads[0].host == "A");
  CHECK(loads[0].card == "x");
  CHECK(loads[0].bytes == 12'000);  // three quarters of 2 x 2 blocks of 4000 bytes
  CHECK(loads[1].bytes == 4'000);
  CHECK(loads[3].host == "B");
  CHECK(loads[3].mbps == 1000);
}

TEST_CASE("the gatherers of a cluster take turns, over several other clusters too") {
  for (const char* layout : {"AAABCD", "AAAABBCCDD", "ABABABABCC", "AAABBBBB"}) {
    CAPTURE(layout);
    const topology::Topology topology = test::layout_topology(layout);
    const auto plans = plan_all_to_all(topology, "gathered");
    for (const topology::Cluster& cluster : topology.clusters()) {
      std::vector<size_t> sends;
      for (const int rank : cluster.ranks) {
        const auto& steps = plans[static_cast<size_t>(rank)].steps;
        sends.push_back(static_cast<size_t>(std::count_if(
            steps.begin(), steps.end(), [](const Step& s) { return s.kind == StepKind::Send; })));
      }
      const auto [least, most] = std::minmax_element(sends.begin(), sends.end());
      CHECK(*most - *least <= 1);
    }
  }
}

TEST_CASE("least bytes between clusters") {
  const topology::Topology topology = test::layout_topology("AABBC");
  const auto least = [&](Collective c) { return least_bytes({c}, topology, 10, DataType::Int16); };
  CHECK(least(Collective::AllReduce) == 2 * 2 * 20);
  CHECK(least(Collective::ReduceScatter) == 2 * 5 * 20);
  CHECK(least(Collective::AllGather) == 2 * 5 * 20);
  CHECK(least(Collective::Broadcast) == 2 * 20);
  CHECK(least(Collective::Reduce) == 2 * 20);
  CHECK(least(Collective::Barrier) == 0);
}

TEST_CASE("peers: symmetric, of other clusters, without oneself") {
  const topology::Topology topology = test::layout_topology("AABBC");
  for (int rank = 0; rank < 5; ++rank) {
    for (int peer : peers(rank, topology)) {
      CHECK(topology.cluster_of(peer) != topology.cluster_of(rank));
      const std::vector<int> back = peers(peer, topology);
      CHECK(std::find(back.begin(), back.end(), rank) != back.end());
    }
  }
  CHECK(peers(0, test::layout_topology("AAA")).empty());
}

}  // namespace
}  // namespace hetccl::plan
