// Seeds faults into good plans, one of each kind: the verifier must report each, for the right
// reason.
#include "verify/verify.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "golden/random_call.h"
#include "golden/random_topology.h"
#include "plan/planner.h"
#include "verify/testing.h"

namespace hetccl::verify {
namespace {

using plan::Buffer;
using plan::RankPlan;
using plan::Region;
using plan::ShardRegion;
using plan::Spec;
using plan::Step;
using plan::StepKind;
using testing::check_fault;

using Plans = std::vector<RankPlan>;

constexpr Spec kAllReduce{Collective::AllReduce};
constexpr Spec kReduceScatter{Collective::ReduceScatter};
constexpr Spec kAllGather{Collective::AllGather};
constexpr Spec kAllToAll{Collective::AllToAll};
constexpr Spec kUnevenAllToAll{.collective = Collective::AllToAll, .uneven = true};
constexpr Spec kBarrier{Collective::Barrier};
constexpr Spec kScaled{.collective = Collective::AllReduce, .scale = true};

std::string fault(const Spec& spec, const topology::Topology& topology, const Plans& plans) {
  const Result<Verified> verified = verify(spec, topology, plans);
  if (!verified.ok()) CHECK(verified.status().code() == ErrorCode::InternalError);
  return verified.ok() ? "none" : verified.status().message();
}

/// Index of the `n`-th step of a kind.
size_t find(const RankPlan& plan, StepKind kind, int n = 0) {
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    if (plan.steps[s].kind == kind && n-- == 0) return s;
  }
  FAIL("no such step");
  return 0;
}

void erase(RankPlan& plan, size_t step) {
  plan.steps.erase(plan.steps.begin() + static_cast<std::ptrdiff_t>(step));
  for (Step& s : plan.steps) {
    std::erase(s.deps, step);
    for (uint16_t& dep : s.deps) dep = static_cast<uint16_t>(dep > step ? dep - 1 : dep);
  }
}

/// Swaps two neighbouring steps.
void swap_steps(RankPlan& plan, size_t first) {
  std::swap(plan.steps[first], plan.steps[first + 1]);
  for (Step& s : plan.steps) {
    for (uint16_t& dep : s.deps) {
      if (dep == first || dep == first + 1) dep = static_cast<uint16_t>(2 * first + 1 - dep);
    }
  }
}

/// Two clusters of two; only the first rank of each is at the border.
topology::Topology narrow() {
  std::vector<topology::RankInfo> infos = test::layout_topology("AABB").infos();
  infos[1].nics[0].distance = infos[3].nics[0].distance = 1;
  return topology::Topology::build(infos).value();
}

TEST_CASE("unharmed plans pass") {
  for (const char* layout : {"A", "AA", "AB", "AABB", "ABAB", "AAB", "ABC", "AABBCC"}) {
    const topology::Topology topology = test::layout_topology(layout);
    for (const Spec& spec :
         {kAllReduce, kReduceScatter, kAllGather, kBarrier, Spec{Collective::Broadcast, 0},
          Spec{Collective::AllReduce, 0, true}, kScaled, Spec{Collective::Reduce, 0}, kAllToAll,
          Spec{Collective::Gather, 0}, Spec{Collective::Scatter, 0}}) {
      CHECK(fault(spec, topology, test::plan_all(spec, topology)) == "none");
    }
  }
}

TEST_CASE("a dropped chunk") {
  const topology::Topology topology = test::layout_topology("AABB");
  Plans plans = test::plan_all(kAllGather, topology);
  const size_t send = find(plans[0], StepKind::Send);
  const int peer = plans[0].steps[send].peer;
  erase(plans[0], send);
  check_fault(fault(kAllGather, topology, plans), "rank 0 sends 0 messages to rank 2");
  RankPlan& receiver = plans[static_cast<size_t>(peer)];
  erase(receiver, find(receiver, StepKind::Recv));
  check_fault(fault(kAllGather, topology, plans), "reads memory that nobody has written");
}

TEST_CASE("an exchange whose ranks list different messages") {
  const topology::Topology topology = test::layout_topology("AAB");
  const Plans good = test::plan_all(kUnevenAllToAll, topology);
  const auto transfers = [](Plans& plans, size_t rank) -> std::vector<plan::TransferRegion>& {
    return plans[rank].steps[find(plans[rank], StepKind::CclExchange)].transfers;
  };
  const auto is_received = [](const plan::TransferRegion& one) { return !one.send; };
  Plans plans = good;
  transfers(plans, 0).pop_back();  // rank 1's message to it
  check_fault(fault(kUnevenAllToAll, topology, plans),
              "unmatched: message 0 from rank 1 to rank 0 in rank 1, step");
  std::erase_if(transfers(plans, 1), [](const auto& one) { return one.send && one.peer == 0; });
  check_fault(fault(kUnevenAllToAll, topology, plans), "was never written");

  plans = good;
  std::erase_if(transfers(plans, 0), is_received);
  std::erase_if(transfers(plans, 1), is_received);
  check_fault(fault(kUnevenAllToAll, topology, plans),
              "unmatched: message 0 from rank 0 to rank 0");

  plans = good;
  for (auto& one : transfers(plans, 0)) one.region.block = one.send ? 1 - one.region.block : 0;
  check_fault(fault(kUnevenAllToAll, topology, plans),
              "unmatched: message 0 from rank 0 to rank 0");

  plans = good;
  transfers(plans, 1)[0].peer = 2;
  check_fault(fault(kUnevenAllToAll, topology, plans), "a peer outside the cluster");

  plans = good;
  erase(plans[0], find(plans[0], StepKind::CclExchange));
  check_fault(fault(kUnevenAllToAll, topology, plans), "rank 1, step 1 (vendor call at stage 0)");
}

TEST_CASE("an exchange that receives two messages in one place, and one where it sends from") {
  const topology::Topology topology = test::layout_topology("AA");
  const Spec gather{.collective = Collective::Gather, .uneven = true};
  Plans plans = test::plan_all(gather, topology);
  for (auto& one : plans[0].steps[0].transfers) {
    if (!one.send && one.peer == 1) one.region.block = 0;
  }
  check_fault(fault(gather, topology, plans), "unmatched: message 0 from rank 1 to rank 0");
  plans = test::plan_all(gather, topology);
  auto& root = plans[0].steps[0].transfers;
  root.insert(root.end(), root.begin(), root.end());
  auto& other = plans[1].steps[0].transfers;
  other.insert(other.end(), other.begin(), other.end());
  check_fault(fault(gather, topology, plans), "overwrites what it reads");
}

TEST_CASE("a copy onto what an exchange receives, on another stream") {
  const topology::Topology topology = test::layout_topology("AAB");
  const Spec gather{Collective::Gather, 0};
  const Options large{.count = 1'000'000};
  Plans plans = test::plan_all(gather, topology);
  CHECK(verify(gather, topology, plans, large).ok());
  plans[0].steps.push_back(
      {.kind = StepKind::Copy, .srcs = {{Buffer::Input}}, .dst = {Buffer::Output}});
  check_fault(verify(gather, topology, plans, large).status().message(), "nothing orders");
  const auto exchange = static_cast<uint16_t>(find(plans[0], StepKind::CclExchange));
  plans[0].steps.back().deps = {exchange};
  CHECK(verify(gather, topology, plans, large).ok());
}

TEST_CASE("a gathered message whose blocks are in the wrong order, too few, or sent too early") {
  const topology::Topology topology = test::layout_topology("AAABBB");
  const Spec gathered{.collective = Collective::AllToAll, .algorithm = "gathered"};
  const Plans good = test::plan_all(gathered, topology);
  CHECK(fault(gathered, topology, good) == "none");
  Plans plans = good;
  const size_t copy = find(plans[0], StepKind::Copy);
  std::swap(plans[0].steps[copy].dst, plans[0].steps[copy + 1].dst);
  check_fault(fault(gathered, topology, plans), "is not what that rank has for it");

  plans = good;
  --plans[0].steps[find(plans[0], StepKind::Send)].srcs[0].blocks;
  check_fault(fault(gathered, topology, plans), "unmatched: rank 0");

  plans = good;
  const size_t send = find(plans[0], StepKind::Send);
  plans[0].steps[send].deps.clear();
  check_fault(fault(gathered, topology, plans), "nothing orders");

  plans = good;
  plans[0].steps[copy].deps.clear();
  check_fault(fault(gathered, topology, plans), "nothing orders");
}

TEST_CASE("runs without form are refused: blocks of two lengths or places, or beyond the scratch") {
  const topology::Topology topology = test::layout_topology("AAABBB");
  const Spec gathered{.collective = Collective::AllToAll, .algorithm = "gathered"};
  const Plans good = test::plan_all(gathered, topology);
  const size_t send = find(good[0], StepKind::Send), copy = find(good[0], StepKind::Copy);
  const auto check = [&](size_t step, const std::string& expected, auto&& change) {
    Plans plans = good;
    change(plans[0].steps[step].srcs[0]);
    check_fault(fault(gathered, topology, plans), expected);
  };
  const std::string bad = "has a bad src region", mixed = "keeps parts of several blocks in one";
  check(send, mixed, [](Region& run) { ++run.blocks; });
  check(send, bad, [](Region& run) { run.blocks = 0; });
  check(send, bad, [](Region& run) { run.end = {1, 2}; });
  check(send, bad, [](Region& run) { run = {.buffer = Buffer::Input, .blocks = 2}; });
  check(send, mixed, [](Region& run) { ++run.of; });
  check(copy + 1, mixed, [](Region& block) { ++block.run; });
  check(copy + 1, mixed, [](Region& block) { block.run = 0; });
  Plans plans = good;
  ++plans[0].steps[find(plans[0], StepKind::Recv)].dst.blocks;
  check_fault(fault(gathered, topology, plans), "has a bad dst region");
}

TEST_CASE("who uses one block of a run uses all: blocks of a shorter slice lie elsewhere") {
  const topology::Topology topology = test::layout_topology("AB");
  Plans plans = test::plan_all(kAllToAll, topology);
  for (RankPlan& plan : plans) plan.slicing = plan::Slicing::Agreed;
  // Rank 0 copies one block through scratch after it has copied the received block.
  RankPlan& plan = plans[0];
  plan.scratch_blocks = 2;
  erase(plan, find(plan, StepKind::Copy));
  const auto copy = [](Region from, Region to, size_t dep) {
    return Step{
        .kind = StepKind::Copy, .deps = {static_cast<uint16_t>(dep)}, .srcs = {from}, .dst = to};
  };
  const size_t recv = find(plan, StepKind::Recv), n = plan.steps.size();
  plan.steps[recv].dst = {Buffer::Scratch, 1};
  plan.steps.push_back(copy({Buffer::Scratch, 1}, {Buffer::Output, 1}, recv));
  plan.steps.push_back(copy({Buffer::Input, 0}, {Buffer::Scratch, 0}, n));
  plan.steps.push_back(copy({Buffer::Scratch, 0}, {Buffer::Output, 0}, n + 1));
  Lowered lowered =
      lower_all(kAllToAll, topology, plans, {.count = 1000, .slice_bytes = 64}).value();
  CHECK(check_code(lowered.problem, lowered.codes).message() == "");
  const auto join = [](lower::Operand& operand) {
    if (operand.memory == lower::Memory::Scratch) operand.region.run = operand.region.block;
  };
  for (lower::Instruction& one : lowered.codes[0].list) {
    for (lower::Operand& src : one.srcs) join(src);
    join(one.dst);
  }
  check_fault(check_code(lowered.problem, lowered.codes).message(), "nothing orders");
}

TEST_CASE("a contribution doubled, and one left out") {
  const topology::Topology topology = test::layout_topology("ABC");
  const Plans good = test::plan_all(kAllReduce, topology);
  Plans plans = good;
  std::vector<Region>& srcs = plans[1].steps[find(plans[1], StepKind::Reduce)].srcs;
  srcs.push_back(srcs[0]);
  check_fault(fault(kAllReduce, topology, plans), "adds the contribution of rank 0 twice");
  srcs.resize(2);
  check_fault(fault(kAllReduce, topology, plans), "lacks a rank's contribution");
}

TEST_CASE("an early overwrite: the reduction in place does not wait for the send") {
  const topology::Topology topology = test::layout_topology("AB");
  Plans plans = test::plan_all(kAllReduce, topology);
  const auto send = static_cast<uint16_t>(find(plans[0], StepKind::Send));
  std::erase(plans[0].steps[find(plans[0], StepKind::Reduce)].deps, send);
  check_fault(fault(kAllReduce, topology, plans), "nothing orders rank 0, step 0 (send");
}

TEST_CASE("an early overwrite: the owner's result arrives where the input is still read") {
  const topology::Topology topology = test::layout_topology("ABC");
  Plans plans = test::plan_all(kAllReduce, topology);
  plans[2].steps[find(plans[2], StepKind::Recv, 2)].deps.clear();
  check_fault(fault(kAllReduce, topology, plans), "share memory in place");
}

TEST_CASE("a read before the write") {
  const topology::Topology topology = test::layout_topology("AABB");
  Plans plans = test::plan_all(kReduceScatter, topology);
  plans[3].steps[find(plans[3], StepKind::Send)].deps.clear();
  check_fault(fault(kReduceScatter, topology, plans), "nothing orders rank 3");
}

TEST_CASE("two messages in one piece of scratch") {
  const topology::Topology topology = test::layout_topology("ABC");
  const Spec spec{.collective = Collective::ReduceScatter, .algorithm = "direct"};
  Plans plans = test::plan_all(spec, topology);
  Step& second = plans[0].steps[find(plans[0], StepKind::Recv, 1)];
  Step& reduce = plans[0].steps[find(plans[0], StepKind::Reduce)];
  for (Region& src : reduce.srcs) {
    if (src.buffer == Buffer::Scratch) src.block = 0;
  }
  second.dst.block = 0;
  check_fault(fault(spec, topology, plans), "share memory");
}

TEST_CASE("a vendor's reduce that adds one part twice, or an identity for a part") {
  std::vector<topology::RankInfo> infos = test::layout_topology("AAABBB").infos();
  for (topology::RankInfo& info : infos) info.kernels = false;
  const topology::Topology topology = topology::Topology::build(infos).value();
  const Plans good = test::plan_all(kAllReduce, topology);
  CHECK(fault(kAllReduce, topology, good) == "none");
  // The second vendor call adds the arrived parts. Each rank is the root of one of its shards.
  const size_t add = find(good[0], StepKind::CclReduce, 1);
  Plans plans = good;
  for (ShardRegion& shard : plans[0].steps[add].shards) {
    if (shard.root == 0) shard.send.buffer = Buffer::Identity, shard.send.block = 0;
  }
  check_fault(fault(kAllReduce, topology, plans), "lacks a rank's contribution");
  plans = good;
  const auto lands = [](const ShardRegion& shard) {
    return shard.root == 0 && shard.send.buffer == Buffer::Scratch;
  };
  int doubled = 0;
  for (const size_t rank : {1, 2}) {
    std::vector<ShardRegion>& shards = plans[rank].steps[add].shards;
    if (std::any_of(shards.begin(), shards.end(), lands)) continue;
    for (ShardRegion& shard : shards) {
      if (shard.root != 0) continue;
      shard.send = {Buffer::Input, 0, shard.send.begin, shard.send.end};
      ++doubled;
    }
  }
  REQUIRE(doubled == 1);
  check_fault(fault(kAllReduce, topology, plans), "twice");
}

TEST_CASE("swapped receives") {
  const topology::Topology topology = narrow();
  const Plans good = test::plan_all(kAllGather, topology);
  const size_t first = find(good[2], StepKind::Recv);
  REQUIRE(good[2].steps[first + 1].kind == StepKind::Recv);
  Plans plans = good;
  swap_steps(plans[2], first);
  check_fault(fault(kAllGather, topology, plans), "unmatched");
  plans = good;
  std::swap(plans[2].steps[first].dst, plans[2].steps[first + 1].dst);
  check_fault(fault(kAllGather, topology, plans), "unmatched");
}

TEST_CASE("arithmetic after the last crossing that differs between ranks") {
  const topology::Topology topology = test::layout_topology("AABB");
  Plans plans = test::plan_all(kAllReduce, topology);
  std::vector<Region>& srcs = plans[3].steps[find(plans[3], StepKind::Reduce)].srcs;
  std::swap(srcs[0], srcs[1]);
  check_fault(fault(kAllReduce, topology, plans), "evaluate different expressions");
}

TEST_CASE("a cyclic wait: both ends receive before they send") {
  const topology::Topology topology = test::layout_topology("AB");
  Plans plans = test::plan_all(kAllReduce, topology);
  for (RankPlan& plan : plans) {
    REQUIRE(find(plan, StepKind::Send) == 0);
    swap_steps(plan, 0);
    plan.steps[1].deps.push_back(0);
  }
  check_fault(fault(kAllReduce, topology, plans), "deadlock");
}

TEST_CASE("a cyclic wait that closes only where all streams are one queue") {
  // Ranks on devices, whose copies out and in are on streams.
  std::vector<topology::RankInfo> infos = test::layout_topology("AB").infos();
  for (topology::RankInfo& info : infos) info.host_access = false;
  const topology::Topology topology = topology::Topology::build(infos).value();
  Plans plans = test::plan_all(kAllReduce, topology);
  for (RankPlan& plan : plans) {
    REQUIRE(find(plan, StepKind::Send) == 0);
    REQUIRE(find(plan, StepKind::Recv) == 1);
    swap_steps(plan, 0);
  }
  check_fault(fault(kAllReduce, topology, plans), "deadlock");
}

TEST_CASE("a cyclic wait that closes only through vendor calls") {
  const topology::Topology topology = test::layout_topology("AABB");
  Plans plans = test::plan_all(kAllReduce, topology);
  // Rank 0 enters its cluster's call once rank 2's partial has arrived, which waits for rank 3 to
  // enter that cluster's call. Rank 3 enters once rank 1's partial has arrived, which waits for
  // rank 0.
  for (size_t rank : {size_t{0}, size_t{3}}) {
    REQUIRE(find(plans[rank], StepKind::Recv) == 2);
    swap_steps(plans[rank], 1);
    swap_steps(plans[rank], 0);
    plans[rank].steps[1].deps = {0};
  }
  check_fault(fault(kAllReduce, topology, plans), "deadlock");
}

TEST_CASE("a missing participant of a vendor call") {
  const topology::Topology topology = test::layout_topology("AABB");
  Plans plans = test::plan_all(kAllReduce, topology);
  erase(plans[1], find(plans[1], StepKind::CclBroadcast));
  check_fault(fault(kAllReduce, topology, plans), "rank 1 of the cluster does not take part");
}

TEST_CASE("a wrong root") {
  const topology::Topology topology = narrow();
  const Plans good = test::plan_all(kAllReduce, topology);
  Plans plans = good;
  plans[1].steps[find(plans[1], StepKind::CclBroadcast)].shards[0].root = 1;
  check_fault(fault(kAllReduce, topology, plans), "meets no equal call of rank 0");
  plans[0].steps[find(plans[0], StepKind::CclBroadcast)].shards[0].root = 1;
  check_fault(fault(kAllReduce, topology, plans), "reads memory that nobody has written");
}

TEST_CASE("an average taken twice, too early, or not at all") {
  const topology::Topology topology = test::layout_topology("AABB");
  const Spec spec{Collective::AllReduce, 0, true};
  const Plans good = test::plan_all(spec, topology);
  Plans plans = good;
  for (RankPlan& plan : plans) plan.steps[find(plan, StepKind::Reduce)].average = false;
  check_fault(fault(spec, topology, plans), "was not averaged");
  plans = good;
  for (RankPlan& plan : plans) plan.steps[find(plan, StepKind::CclReduce)].average = true;
  check_fault(fault(spec, topology, plans), "averages what is not yet the sum of all ranks");
  check_fault(fault(kAllReduce, topology, good), "was averaged");
}

TEST_CASE("a mean that is divided as if it had been scaled before, or had not") {
  const topology::Topology topology = test::layout_topology("AAB");
  const Spec mean{.collective = Collective::AllReduce, .average = true, .scale = true};
  for (const bool apart : {false, true}) {
    Spec spec = mean;
    spec.scale_apart = apart;
    Plans plans = test::plan_all(spec, topology);
    CHECK(fault(spec, topology, plans) == "none");
    for (RankPlan& plan : plans) plan.scales_averages = false;
    check_fault(fault(spec, topology, plans), "does not divide a mean by what is left");
  }
  const Spec average{Collective::AllReduce, 0, true};
  Plans plans = test::plan_all(average, topology);
  for (RankPlan& plan : plans) plan.scales_averages = true;
  check_fault(fault(average, topology, plans), "does not divide a mean by what is left");
  plans = test::plan_all(average, topology);
  check_fault(fault(mean, topology, plans), "was not multiplied");
}

TEST_CASE("a factor that is forgotten, applied twice, or applied to a sum") {
  const topology::Topology topology = test::layout_topology("AAB");
  const Plans good = test::plan_all(kScaled, topology);
  check_fault(fault(kAllReduce, topology, good), "was multiplied by the ranks' factors");
  check_fault(fault(kScaled, topology, test::plan_all(kAllReduce, topology)),
              "was not multiplied by the ranks' factors");
  Plans plans = good;
  plans[2].steps[find(plans[2], StepKind::Reduce)].scale = false;
  check_fault(fault(kScaled, topology, plans), "adds what was multiplied");
  plans = good;
  plans[2].steps[find(plans[2], StepKind::Reduce, 1)].scale = true;
  check_fault(fault(kScaled, topology, plans), "multiplies by a factor twice");
  plans = test::plan_all(kAllReduce, topology);
  plans[0].steps[find(plans[0], StepKind::Reduce)].scale = true;
  check_fault(fault(kAllReduce, topology, plans), "multiplies what is not its own input");
  plans = good;
  plans[0].steps[find(plans[0], StepKind::CclReduce)].scale = false;
  check_fault(fault(kScaled, topology, plans), "meets no equal call");
  plans[1].steps[find(plans[1], StepKind::CclReduce)].scale = false;
  check_fault(fault(kScaled, topology, plans), "adds what was multiplied");
  plans = good;
  plans[2].steps[find(plans[2], StepKind::Send)].scale = true;
  check_fault(fault(kScaled, topology, plans), "a factor where nothing is reduced");
}

TEST_CASE("a rooted reduction that loses a cluster, or writes where nobody receives") {
  const topology::Topology topology = test::layout_topology("AABB");
  const Spec spec{Collective::Reduce, 1};
  const Plans good = test::plan_all(spec, topology);
  CHECK(fault(spec, topology, good) == "none");
  Plans plans = good;
  plans[0].steps[find(plans[0], StepKind::Reduce)].srcs.pop_back();
  check_fault(fault(spec, topology, plans), "lacks a rank's contribution");
  plans = good;
  plans[0].steps[find(plans[0], StepKind::Reduce)].dst.buffer = Buffer::Output;
  check_fault(fault(spec, topology, plans), "a bad dst region");
  plans = good;
  const size_t gather = find(plans[0], StepKind::CclBroadcast);
  plans[0].steps[gather].shards[0].receiver = 0;
  check_fault(fault(spec, topology, plans), "a bad recv region");
  plans = good;
  for (size_t rank : {size_t{0}, size_t{1}})
    erase(plans[rank], find(plans[rank], StepKind::CclBroadcast));
  check_fault(fault(spec, topology, plans), "was never written");
}

TEST_CASE("a barrier that lets a rank pass") {
  const topology::Topology topology = test::layout_topology("AABB");
  Plans plans = test::plan_all(kBarrier, topology);
  Step& last = plans[0].steps[find(plans[0], StepKind::CclBarrier, 1)];
  last.deps.clear();
  check_fault(fault(kBarrier, topology, plans), "rank 1 may pass the barrier before rank 2");
}

TEST_CASE("plans without form are refused, not executed") {
  const topology::Topology topology = test::layout_topology("AABB");
  const Plans good = test::plan_all(kAllReduce, topology);
  const auto broken = [&](auto&& harm) {
    Plans plans = good;
    harm(plans[0]);
    return fault(kAllReduce, topology, plans);
  };
  check_fault(broken([](RankPlan& p) { p.steps[0].deps = {0}; }), "waits for itself");
  check_fault(broken([](RankPlan& p) { p.steps[0].stage = 9; }), "beyond the plan's last");
  check_fault(broken([](RankPlan& p) { p.steps[0].shards[0].root = 2; }), "outside the cluster");
  check_fault(broken([](RankPlan& p) { p.steps[1].peer = 4; }), "a bad peer");
  check_fault(broken([](RankPlan& p) { p.steps[1].srcs[0].block = 7; }), "a bad src region");
  check_fault(broken([](RankPlan& p) { p.steps[1].srcs[0].end.den = 0; }), "a bad src region");
  check_fault(broken([](RankPlan& p) { p.steps.back().shards[0].recv.buffer = Buffer::Input; }),
              "a bad recv region");
  check_fault(broken([](RankPlan& p) { p.steps[1].srcs[0].buffer = Buffer::Identity; }),
              "a bad src region");
  check_fault(broken([](RankPlan& p) { p.stages = 4; }), "stages");
  check_fault(broken([](RankPlan& p) { p.output_blocks = 2; }), "output blocks");
  CHECK(verify(kAllReduce, topology, {}).status().code() == ErrorCode::InvalidArgument);
  CHECK(verify(kAllReduce, topology, good, {.slice_bytes = 100}).status().code() ==
        ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace hetccl::verify
