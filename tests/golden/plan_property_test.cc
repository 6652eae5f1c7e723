// The verifier over random topologies: every plan of every planner must pass, and must move exactly
// the least bytes between clusters.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "golden/random_call.h"
#include "plan/crossing.h"

namespace hetccl::plan {
namespace {

using test::plan_all;
using verify::verify;
using VerifyOptions = verify::Options;
using verify::Verified;

// Sanitizers slow the verifier down tenfold, and see the same of it in a few cases.
constexpr uint64_t kCases = 15'000;
#if defined(HETCCL_UNDER_ASAN)
constexpr uint64_t kOneIn = 150, kLargeOneIn = 8;
#else
constexpr uint64_t kOneIn = 10, kLargeOneIn = 1;
#endif

// Bytes if every rank's block goes to every rank of the other clusters.
uint64_t mirrored_bytes(const topology::Topology& topology, const VerifyOptions& options) {
  const auto n = static_cast<uint64_t>(topology.n_ranks());
  uint64_t blocks = 0;
  for (const auto& cluster : topology.clusters())
    blocks += cluster.ranks.size() * (n - cluster.ranks.size());
  return blocks * options.count * size_of(options.type);
}

// An exchange sends every cluster's part to every other, where owners would add them up between; a
// mirror to every rank of every other.
uint64_t bytes_of(const Spec& spec, const std::vector<RankPlan>& plans,
                  const topology::Topology& topology, const VerifyOptions& options) {
  const uint64_t least = least_bytes(spec, topology, options.count, options.type);
  const bool mirrors = plans[0].name == "mirror";
  if (mirrors && spec.collective != Collective::AllReduce) return mirrored_bytes(topology, options);
  if (mirrors) return least / 2 * static_cast<uint64_t>(topology.n_ranks());
  return plans[0].name == "exchange" ? least * topology.clusters().size() / 2 : least;
}

void check_peers(const Spec& spec, const std::vector<RankPlan>& plans,
                 const topology::Topology& topology) {
  if (!find_algorithm(spec, topology).value()->connects_at_init) return;
  for (int rank = 0; rank < topology.n_ranks(); ++rank) {
    const std::vector<int> allowed = peers(rank, topology);
    for (const Step& step : plans[static_cast<size_t>(rank)].steps) {
      if (step.peer >= 0) CHECK(std::binary_search(allowed.begin(), allowed.end(), step.peer));
    }
  }
}

// Checks exec's rule for shards (ccl::Shard::follows): all ranks have them in the same buffer,
// unless the step says otherwise.
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

// The longest chain of messages between clusters. Follows deps, messages and the library's calls,
// of which every rank of a cluster makes the same in the same order.
class LongestChain {
 public:
  LongestChain(const std::vector<RankPlan>& plans, const topology::Topology& topology)
      : plans_(plans), topology_(topology), hops_(plans.size()) {
    for (size_t r = 0; r < plans.size(); ++r) hops_[r].resize(plans[r].steps.size());
  }

  int hops() {
    while (is_changed_) {
      is_changed_ = false;
      for (size_t r = 0; r < plans_.size(); ++r) visit(r);
    }
    return longest_;
  }

 private:
  using Meeting = std::tuple<int, int, uint32_t>;  // sender, receiver, number; or cluster, -1, call

  void raise(int& hops, int to) {
    is_changed_ = is_changed_ || hops < to;
    hops = std::max(hops, to);
    longest_ = std::max(longest_, hops);
  }

  void visit(size_t r) {
    const int rank = static_cast<int>(r), cluster = topology_.cluster_of(rank);
    uint32_t calls = 0;
    for (size_t s = 0; s < hops_[r].size(); ++s) {
      const Step& step = plans_[r].steps[s];
      int& hops = hops_[r][s];
      for (const uint16_t dep : step.deps) raise(hops, hops_[r][dep]);
      if (step.kind == StepKind::Send) {
        const int crosses = topology_.cluster_of(step.peer) == cluster ? 0 : 1;
        raise(met_[{rank, step.peer, step.message}], hops + crosses);
      } else if (step.kind == StepKind::Recv) {
        raise(hops, met_[{step.peer, rank, step.message}]);
      } else if (step.kind != StepKind::Reduce && step.kind != StepKind::Copy) {
        int& met = met_[{cluster, -1, calls++}];
        raise(met, hops);
        raise(hops, met);
      }
    }
  }

  const std::vector<RankPlan>& plans_;
  const topology::Topology& topology_;
  std::vector<std::vector<int>> hops_;  // per rank and step, once it is complete
  std::map<Meeting, int> met_;
  int longest_ = 0;
  bool is_changed_ = true;
};

// Checks that the cost model counts the same from one rank's plan as from all ranks' plans,
// whichever rank of its cluster is the root.
void check_crossing(Spec spec, const std::vector<RankPlan>& plans,
                    const topology::Topology& topology) {
  Crossing all(topology);
  for (int rank = 0; rank < topology.n_ranks(); ++rank) {
    for (const Step& step : plans[static_cast<size_t>(rank)].steps) {
      if (step.kind != StepKind::Send) continue;
      const Region& sent = step.srcs[0];
      all.add(rank, step.peer, step.stage, sent.blocks * length_of(sent.begin, sent.end));
    }
  }
  const auto root_cluster = static_cast<size_t>(topology.cluster_of(spec.root));
  spec.root = topology.clusters()[root_cluster].ranks.front();
  spec.average = spec.scale = spec.scale_apart = false;
  const Algorithm* const row = find_algorithm(spec, topology).value();
  const Crossing counted = count_crossing(*row, spec, topology);
  CHECK(counted.hops() == LongestChain(plans, topology).hops());
  CHECK(counted.stages == all.stages);
  for (size_t c = 0; c < topology.clusters().size(); ++c) {
    CHECK(counted.clusters[c].sent == doctest::Approx(all.clusters[c].sent));
    CHECK(counted.clusters[c].received == doctest::Approx(all.clusters[c].received));
  }
}

// Checks that the cost model's counts match the Code: messages of the busiest rank, and library
// calls in the largest cluster.
void check_code(Spec spec, const std::vector<RankPlan>& plans, const topology::Topology& topology,
                const VerifyOptions& options) {
  const auto lowered = verify::lower_all(spec, topology, plans, options);
  REQUIRE_MESSAGE(lowered.ok(), lowered.status().message());
  uint64_t busiest = 0;
  std::vector<int> calls;
  for (int rank = 0; const lower::Code& code : lowered.value().codes) {
    uint64_t sent = 0, received = 0;
    calls.push_back(0);
    for (const lower::Instruction& one : code.list) {
      if (lower::info_of(one.op).is(lower::OpcodeInfo::kCollective)) ++calls.back();
      using enum lower::Opcode;
      const bool sends = one.op == Send || one.op == SendHeader;
      if (!sends && one.op != Recv && one.op != RecvHeader) continue;
      const int peer = code.lanes[code.messages[one.message].lane].peer;
      if (topology.cluster_of(peer) != topology.cluster_of(rank)) ++(sends ? sent : received);
    }
    busiest = std::max({busiest, sent, received});
    ++rank;
  }
  spec.average = spec.scale = spec.scale_apart = false;
  const Crossing counted = count_crossing(*find_algorithm(spec, topology).value(), spec, topology);
  uint64_t expected = 0;
  for (const auto& handled : counted.ranks) expected = std::max(expected, handled.messages());
  CHECK(busiest == expected);
  const auto& clusters = topology.clusters();
  const auto largest = std::max_element(
      clusters.begin(), clusters.end(),
      [](const auto& a, const auto& b) { return a.ranks.size() < b.ranks.size(); });
  CHECK(calls[static_cast<size_t>(largest->ranks.front())] == counted.library_calls);
}

TEST_CASE("plans of random topologies pass the verifier and move the least bytes") {
  for (const uint64_t seed : fake::sampled_seeds(kCases, kOneIn)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const topology::Topology topology = test::random_topology(random);
    const Spec spec = test::random_spec(random, topology);
    const VerifyOptions options = test::random_options(random);
    const std::vector<RankPlan> plans = plan_all(spec, topology);
    const Result<Verified> verified = verify(spec, topology, plans, options);
    REQUIRE_MESSAGE(verified.ok(), name_of(spec.collective), ": ", verified.status().message(),
                    "\n", topology.to_json());
    CHECK(verified.value().cross_bytes == bytes_of(spec, plans, topology, options));
    if (seed % 16 == 0) check_peers(spec, plans, topology);
    if (seed % 16 == 0) check_shards(plans);
    if (seed % 16 == 1) check_crossing(spec, plans, topology);
    if (seed % 16 == 2) check_code(spec, plans, topology, options);
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
      for (const char* algorithm : {"owner", "exchange"}) {
        for (const int how : {0, 1, 2}) {
          CAPTURE(layout);
          CAPTURE(host);
          const Spec spec{.collective = Collective::AllReduce,
                          .average = how == 1,
                          .scale = how == 2,
                          .algorithm = algorithm};
          const std::vector<RankPlan> plans = plan_all(spec, topology);
          CHECK(plans[0].name == algorithm);
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
  uint64_t index = 0;
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
      if (!fake::is_sampled(index++, kLargeOneIn)) continue;
      const Spec spec{collective, 5, collective == Collective::AllReduce,
                      collective == Collective::ReduceScatter};
      const Result<Verified> verified = verify(spec, topology, plan_all(spec, topology));
      CHECK_MESSAGE(verified.ok(), verified.status().message());
    }
    if (!fake::is_sampled(index++, kLargeOneIn)) continue;
    infos = topology.infos();
    for (auto& info : infos) {
      info.label = info.host;
      info.host = "one";
      info.shared_memory = true;
    }
    const topology::Topology together = topology::Topology::build(std::move(infos)).value();
    for (const auto collective :
         {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter}) {
      const Spec mirror{.collective = collective, .algorithm = "mirror"};
      const Result<Verified> verified = verify(mirror, together, plan_all(mirror, together));
      CHECK_MESSAGE(verified.ok(), verified.status().message());
    }
  }
}

}  // namespace
}  // namespace hetccl::plan
