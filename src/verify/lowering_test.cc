// Lowers planners' plans: the Code passes the verifier, with and without rings, and needs each wait
// that drop_implied_waits leaves.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "fake/sample.h"
#include "golden/random_call.h"
#include "golden/random_topology.h"
#include "lower/graph.h"
#include "plan/call.h"
#include "plan/planner.h"
#include "verify/testing.h"

namespace hetccl::verify {
namespace {

#if defined(HETCCL_UNDER_ASAN)  // the verifier is ten times slower there
constexpr uint64_t kLoweringOneIn = 5;
#else
constexpr uint64_t kLoweringOneIn = 1;
#endif

using lower::Opcode;
using plan::RankPlan;
using plan::Spec;
using testing::check_fault;

/// A random topology on one host, of devices and hosts that share windows.
topology::Topology with_windows(std::mt19937_64& random) {
  std::vector<topology::RankInfo> infos = test::random_topology(random).infos();
  const uint64_t devices = random();  // one bit per cluster, roughly
  for (topology::RankInfo& info : infos) {
    info.label = info.host + info.label;
    info.host = "one";
    info.host_access = (devices >> std::hash<std::string>()(info.label) % 64 & 1U) == 0;
    info.window_bytes = 16 << 20;
  }
  return topology::Topology::build(std::move(infos)).value();
}

Spec random_spec(std::mt19937_64& random, const topology::Topology& topology) {
  Spec spec{static_cast<Collective>(random() % static_cast<uint64_t>(Collective::PointToPoint))};
  if (is_rooted(spec.collective)) {
    spec.root = static_cast<int>(random() % static_cast<uint64_t>(topology.n_ranks()));
  }
  return spec;
}

size_t count_of(const Codes& codes, Opcode op) {
  size_t count = 0;
  for (const lower::Code& code : codes) {
    for (const lower::Instruction& one : code.list) count += one.op == op ? 1 : 0;
  }
  return count;
}

/// Runs all passes except the one that drops waits.
lower::Code lower_with_all_waits(const RankPlan& plan, const lower::Target& target,
                                 const lower::Geometry& geometry) {
  lower::Graph graph = lower::build_graph(plan, target, geometry).value();
  stage_messages(graph);
  read_in_place(graph);
  make_in_ring(graph);
  merge_streams(graph);
  join_streams(graph);
  wait_for_slots(graph);
  return emit(std::move(graph));
}

lower::Code without(lower::Code code, uint32_t index) {
  code.list.erase(code.list.begin() + static_cast<std::ptrdiff_t>(index));
  code.body -= index < code.body ? 1 : 0;
  code.epilogue -= index < code.epilogue ? 1 : 0;
  index_lanes(code);
  return code;
}

}  // namespace

TEST_CASE("Code of clusters that share windows passes, long calls and short ones") {
  size_t rings = 0, in_place = 0;
  const std::vector<uint64_t> seeds = fake::sampled_seeds(300, kLoweringOneIn);
  for (const uint64_t seed : seeds) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const topology::Topology topology = with_windows(random);
    const Spec spec = random_spec(random, topology);
    const auto plans = test::plan_all(spec, topology);
    Options options;
    options.depth = static_cast<uint32_t>(random() % 5);
    options.count = random() % 4 == 0 ? random() % 1000 : random() % 2'000'000;
    options.slice_bytes = 64 * (1 + random() % 20'000);
    if (seed % 2 == 0) options.reaches = [](int rank, int peer) { return (rank + peer) % 2 == 0; };
    options.registered = seed % 4 == 0;
    const Result<Verified> verified = verify(spec, topology, plans, options);
    CHECK_MESSAGE(verified.ok(), name_of(spec.collective), ": ", verified.status().message(), "\n",
                  topology.to_json());
    const Lowered lowered = lower_all(spec, topology, plans, options).value();
    rings += count_of(lowered.codes, Opcode::Reserve);
    in_place += count_of(lowered.codes, Opcode::Locate);
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      for (const lower::Instruction& one : lowered.codes[rank].list) {
        if (one.op != Opcode::Copy || one.srcs[0].memory != lower::Memory::Ring) continue;
        in_place -= plans[rank].steps[one.step].kind == plan::StepKind::Recv ? 1 : 0;
      }
    }
  }
  MESSAGE(rings, " places reserved in rings, ", in_place, " messages read in place");
  if (seeds.size() < 300) return;  // a small sample may have few of them
  CHECK(rings > 100);
  CHECK(in_place > 20);
}

TEST_CASE("drop_implied_waits drops waits, and Code passes with them and without") {
  size_t all = 0, left = 0;
  const std::vector<uint64_t> seeds = fake::sampled_seeds(100, kLoweringOneIn);
  for (const uint64_t seed : seeds) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const topology::Topology topology = with_windows(random);
    const Spec spec = random_spec(random, topology);
    const auto plans = test::plan_all(spec, topology);
    const Lowered lowered = lower_all(spec, topology, plans, {}).value();
    const Status passes = check_code(lowered.problem, lowered.codes);
    CHECK_MESSAGE(passes.ok(), passes.message());
    Codes codes;
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      codes.push_back(lower_with_all_waits(plans[rank], lowered.problem.targets[rank],
                                           lowered.problem.geometries[rank]));
    }
    const Status with_all = check_code(lowered.problem, codes);
    CHECK_MESSAGE(with_all.ok(), with_all.message());
    all += count_of(codes, Opcode::Wait);
    left += count_of(lowered.codes, Opcode::Wait);
  }
  MESSAGE(left, " of ", all, " waits are left");
  CHECK(left < all);
  if (seeds.size() < 100) return;  // in a small sample few waits may be implied
  CHECK(left * 10 < all * 8);
}

// Only if the plan has no dependency too many: in AABBC a receive waits for two messages, one of
// which shares no memory with it.
TEST_CASE("of the waits of a slice that are left none may go") {
  size_t waits = 0;
  for (const char* layout : {"AB", "AABB", "ABC", "ABAB"}) {
    for (const Collective collective :
         {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter}) {
      for (const uint64_t count : {100, 1000}) {  // one slice, and eight
        CAPTURE(std::string(layout));
        CAPTURE(name_of(collective));
        const topology::Topology topology = test::layout_topology(layout);
        const Spec spec{collective};
        const Lowered lowered =
            lower_all(spec, topology, test::plan_all(spec, topology), {.count = count}).value();
        REQUIRE(check_code(lowered.problem, lowered.codes).ok());
        for (size_t rank = 0; rank < lowered.codes.size(); ++rank) {
          const lower::Code& code = lowered.codes[rank];
          for (uint32_t i = code.body; i < code.epilogue; ++i) {
            if (code.list[i].op != Opcode::Wait) continue;
            CAPTURE(describe(code, i));
            Codes codes = lowered.codes;
            codes[rank] = without(code, i);
            CHECK_FALSE(check_code(lowered.problem, codes).ok());
            ++waits;
          }
        }
      }
    }
  }
  CHECK(waits > 100);
}

TEST_CASE("a call's end is told once, and last, by a stream that has waited for the others") {
  const topology::Topology topology = test::layout_topology("AB");
  const Spec spec{Collective::AllGather};
  const Lowered good = lower_all(spec, topology, test::plan_all(spec, topology), {}).value();
  const auto fault_with = [&](auto&& change) {
    Lowered changed = good;
    change(changed.codes[0].list, changed.codes[0].epilogue);
    return testing::fault(changed);
  };
  using List = std::vector<lower::Instruction>;
  CHECK(fault_with([](List&, uint32_t) {}) == "none");
  check_fault(fault_with([](List& list, uint32_t) { list.pop_back(); }),
              "rank 0's Code tells no end");
  check_fault(fault_with([](List& list, uint32_t epilogue) {
                std::rotate(list.begin() + epilogue, list.end() - 1, list.end());
              }),
              "may still work on the call once it is retired");
  check_fault(fault_with([](List& list, uint32_t) {
                list.back().queue = lower::stream_queue(lower::QueueKind::Work);
              }),
              "no event keeps rank 0's caller");
  check_fault(fault_with([](List& list, uint32_t) { list.push_back(list.back()); }),
              "counts a sync that another instruction counts");
  check_fault(fault_with([](List& list, uint32_t) {
                list.back().op = Opcode::Signal;
                list.back().sync = lower::kFinished;
              }),
              "rank 0 never tells that a call has ended");
}

// Two reductions of one rank, a half of the block each.
TEST_CASE("what the host computes for a call is in one place, so on one stream") {
  std::vector<topology::RankInfo> infos = test::layout_topology("A").infos();
  infos[0].kernels = false;
  const topology::Topology topology = topology::Topology::build(std::move(infos)).value();
  const Spec spec{.collective = Collective::AllReduce, .scale = true};
  Lowered lowered = lower_all(spec, topology, test::plan_all(spec, topology), {}).value();
  lower::Code& code = lowered.codes[0];
  REQUIRE(count_of(lowered.codes, Opcode::HostReduce) == 1);
  lower::Instruction &first = code.list[code.body], second = first;
  REQUIRE(first.op == Opcode::HostReduce);
  first.srcs[0].region.end = first.dst.region.end = {1, 2};
  second.srcs[0].region.begin = second.dst.region.begin = {1, 2};
  code.list.insert(code.list.begin() + code.epilogue++, second);
  CHECK(testing::fault(lowered) == "none");

  const auto user = lower::stream_queue(lower::QueueKind::User),
             work = lower::stream_queue(lower::QueueKind::Work);
  const auto sync = [](Opcode op, lower::QueueId queue, lower::SyncId which) {
    return lower::Instruction{.op = op, .queue = queue, .sync = which};
  };
  const auto begun = static_cast<lower::SyncId>(code.syncs.size()),
             ended = lower::SyncId(begun + 1);
  code.syncs.insert(code.syncs.end(), 2, {.event = true, .once = true});
  const auto run_on = [&](Opcode op) {
    Lowered changed = lowered;
    lower::Code& one = changed.codes[0];
    one.list[one.epilogue - 1].queue = work;
    one.list[one.epilogue - 1].op = op;
    one.list.insert(one.list.begin() + one.epilogue,
                    {sync(Opcode::Signal, work, ended), sync(Opcode::Wait, user, ended)});
    one.list.insert(one.list.begin() + one.body,
                    {sync(Opcode::Signal, user, begun), sync(Opcode::Wait, work, begun)});
    one.body += 2, one.epilogue += 2;
    return testing::fault(changed);
  };
  CHECK(run_on(Opcode::Reduce) == "none");  // the device has memory for both
  check_fault(run_on(Opcode::HostReduce), "which share memory");
}

}  // namespace hetccl::verify
