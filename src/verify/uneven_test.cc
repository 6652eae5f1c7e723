// Uneven calls: ranks cut them differently, and messages end with their own blocks.
#include <doctest/doctest.h>

#include <algorithm>

#include "golden/random_call.h"
#include "verify/mutate.h"
#include "verify/testing.h"

namespace hetccl::verify {
namespace {

using testing::check_fault;
using testing::fault;

constexpr uint64_t kSlice = 128;  // elements
#if defined(HETCCL_UNDER_ASAN)    // the verifier is ten times slower there
constexpr uint64_t kOneInUneven = 6;
#else
constexpr uint64_t kOneInUneven = 1;
#endif

/// All ranks on devices, so that messages are staged and slices are fixed.
topology::Topology on_uneven_devices(const char* layout, int64_t window = 0) {
  std::vector<topology::RankInfo> infos = test::layout_topology(layout).infos();
  for (topology::RankInfo& info : infos) {
    info.host_access = false;
    if (window == 0) continue;
    info.label = info.host;  // all clusters on one host
    info.host = "one";
    info.window_bytes = window;
  }
  return topology::Topology::build(std::move(infos)).value();
}

Options options_of(std::vector<uint64_t> lengths) {
  Options options;
  options.count = 12 * kSlice;
  options.slice_bytes = 4 * kSlice;
  options.lengths = std::move(lengths);
  return options;
}

Lowered lower_call(const plan::Spec& spec, const topology::Topology& topology,
                   std::vector<uint64_t> lengths) {
  return lower_all(spec, topology, test::plan_all(spec, topology), options_of(std::move(lengths)))
      .value();
}

/// For "AAB": rank 2 has nothing for rank 0 and 3 slices for rank 1, which has 9 slices for rank 2.
const std::vector<uint64_t> kLengths = {5,   2 * kSlice,
                                        1,  //
                                        700, 0,          9 * kSlice - 1, 0, 2 * kSlice + 1, 77};
constexpr plan::Spec kUneven{.collective = Collective::AllToAll, .uneven = true};

}  // namespace

TEST_CASE("ranks that know their own blocks alone run different numbers of slices") {
  for (const int64_t window : {0, 4 << 20}) {
    const topology::Topology topology = on_uneven_devices("AAB", window);
    const Lowered lowered = lower_call(kUneven, topology, kLengths);
    CHECK(lowered.codes[2].fixed_slices);
    CHECK(lowered.problem.n_slices == std::vector<uint32_t>{6, 9, 9});
    CHECK(fault(lowered) == "none");
  }
}

TEST_CASE("a receiver that waits for slices which never travel") {
  const topology::Topology topology = on_uneven_devices("AAB");
  Lowered even = lower_call(kUneven, topology, {}),
          uneven = lower_call(kUneven, topology, kLengths);
  for (Lowered* const one : {&even, &uneven}) one->codes[2].fixed_slices = false;
  CHECK(fault(even) == "none");
  check_fault(fault(uneven),
              "in slice 0 meets rank 2, step 4 (receive message 2 from rank 0) in slice 1");
}

TEST_CASE("a message of nothing that nobody receives") {
  const topology::Topology topology = on_uneven_devices("AB");
  const plan::Spec gather{.collective = Collective::Gather, .uneven = true};
  Lowered lowered = lower_call(gather, topology, {3 * kSlice, 0});
  CHECK(fault(lowered) == "none");
  lowered.codes[0].lanes[0].of(lower::QueueKind::Recv).clear();
  check_fault(fault(lowered), "deadlock");
}

TEST_CASE("an exchange of blocks that is cut as each rank cuts its own") {
  const topology::Topology topology = on_uneven_devices("AAB");
  Lowered even = lower_call(kUneven, topology, {}),
          uneven = lower_call(kUneven, topology, kLengths);
  for (Lowered* const one : {&even, &uneven}) {
    for (lower::Code& code : one->codes) {
      for (lower::Instruction& instruction : code.list) instruction.whole = false;
    }
  }
  CHECK(fault(even) == "none");
  check_fault(fault(uneven), "deadlock");
}

TEST_CASE("slices that ranks would have to agree on") {
  const topology::Topology topology = on_uneven_devices("AAB");
  std::vector<plan::RankPlan> plans = test::plan_all(kUneven, topology);
  for (plan::RankPlan& plan : plans) plan.slicing = plan::Slicing::Agreed;
  CHECK(lower_all(kUneven, topology, plans, options_of({})).ok());
  const auto uneven = lower_all(kUneven, topology, plans, options_of(kLengths));
  REQUIRE_FALSE(uneven.ok());
  check_fault(uneven.status().message(), "cuts the call into");
}

TEST_CASE("all ranks agree on the slices of blocks that all of them know") {
  for (const Collective collective : {Collective::AllGather, Collective::ReduceScatter}) {
    const topology::Topology topology = on_uneven_devices("AABB");
    const Lowered lowered =
        lower_call({collective}, topology, {0, 4 * kSlice + 1, 30, 11 * kSlice});
    const uint32_t n_slices = lowered.problem.n_slices[0];
    CHECK(lowered.problem.n_slices == std::vector<uint32_t>(4, n_slices));
    CHECK(n_slices > 5);
    CHECK(fault(lowered) == "none");
  }
}

TEST_CASE("slices that repeat others are left out, the ends of blocks are not") {
  const topology::Topology topology = on_uneven_devices("AB");
  const plan::Spec gather{Collective::AllGather};
  // The pipeline is 3 deep, so 6 slices show all cases.
  const Lowered even = lower_call(gather, topology, {});
  const uint32_t enough = std::max(even.codes[0].n_slots, even.codes[0].last_lag) + 2;
  Options options = options_of({40 * kSlice + 1, 20 * kSlice + 7});
  const Lowered lowered =
      lower_all(gather, topology, test::plan_all(gather, topology), options).value();
  CHECK(lowered.problem.n_slices[0] == 2 * enough);
  CHECK(lowered.problem.lengths[0] == (2 * enough - 1) * kSlice + 1);
  CHECK(lowered.problem.lengths[1] == (enough - 1) * kSlice + 7);
  options.lengths.clear();
  options.count = 40 * kSlice + 9;
  const Lowered long_call =
      lower_all(gather, topology, test::plan_all(gather, topology), options).value();
  CHECK(long_call.problem.length == (enough - 1) * kSlice + 9);
}

TEST_CASE("a block of another length than its message") {
  const topology::Topology topology = on_uneven_devices("AB");
  Lowered lowered = lower_call(kUneven, topology, {1, 3 * kSlice, 2 * kSlice, 0});
  CHECK(fault(lowered) == "none");
  // Rank 1 takes the message to be for the block that it keeps.
  for (lower::LaneMessage& message : lowered.codes[1].messages) {
    if (!message.sends) message.region.block = 1;
  }
  CHECK(fault(lowered) != "none");
}

// A smaller share than of even calls: a wait that matters only in the last slices orders nothing if
// its block has ended before.
TEST_CASE("mutants of calls whose blocks all have many slices are rejected") {
  uint64_t made = 0, rejected = 0;
  const std::vector<uint64_t> seeds = fake::sampled_seeds(60, kOneInUneven);
  for (const uint64_t seed : seeds) {
    std::mt19937_64 random(seed);
    const topology::Topology topology = test::random_topology(random);
    const plan::Spec spec{test::kUneven[random() % std::size(test::kUneven)]};
    Options options = options_of({});
    test::draw_lengths(random, spec, topology, options);
    for (uint64_t& length : options.lengths) length += 20 * kSlice;
    const Lowered lowered = lower_call(spec, topology, options.lengths);
    REQUIRE(fault(lowered) == "none");
    const MutationReport report = try_mutants(lowered.problem, lowered.codes, 10, seed);
    made += report.made;
    rejected += report.rejected;
  }
  CHECK(made > 5 * seeds.size());
  // At most 3 % may survive over all seeds; a sample may have as many as all seeds.
  const auto all = static_cast<double>(made) * 60 / static_cast<double>(seeds.size());
  CHECK(static_cast<double>(made - rejected) <= 0.03 * std::max(all, static_cast<double>(made)));
}

}  // namespace hetccl::verify
