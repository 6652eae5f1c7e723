#include "plan/planner.h"

#include <algorithm>
#include <limits>
#include <set>

#include "plan/call.h"
#include "plan/collectives.h"

namespace hetccl::plan {
namespace {

using topology::Cluster;
using topology::Link;
using topology::Topology;

constexpr uint64_t kMinSlice = uint64_t{64} << 10U;    // below, a slice's fixed cost shows
constexpr uint64_t kMaxCrossing = uint64_t{4} << 20U;  // of one slice: stays in caches
constexpr uint64_t kShmCrossing = uint64_t{1} << 20U;  // no wire: the cache alone counts
constexpr uint64_t kMaxSlices = 64;                    // of one collective
constexpr int64_t kUnknownMbps = 1000;
constexpr uint64_t kSliceMicroseconds = 2000;  // of the slowest link's time

/// Does every block go straight from one rank to another, within clusters too?
bool is_pairwise(Collective collective) {
  return collective == Collective::Gather || collective == Collective::Scatter ||
         collective == Collective::AllToAll;
}

RankPlan plan_collective(Builder builder) {
  if (is_pairwise(builder.spec().collective)) return plan_direct(std::move(builder));
  if (builder.n_clusters() == 1) return plan_one_cluster(std::move(builder));
  switch (builder.spec().collective) {
    case Collective::AllReduce:
      return builder.n_clusters() == 2 ? plan_all_reduce_exchange(std::move(builder))
                                       : plan_all_reduce_owner(std::move(builder));
    case Collective::ReduceScatter:
      return plan_reduce_scatter(std::move(builder));
    case Collective::AllGather:
      return plan_all_gather(std::move(builder));
    case Collective::Broadcast:
      return plan_broadcast(std::move(builder));
    case Collective::Reduce:
      return plan_reduce(std::move(builder));
    default:
      return plan_barrier(std::move(builder));
  }
}

/// Bytes that may cross the slowest link, one way, in one slice.
uint64_t crossing_bytes(const Topology& topology) {
  uint64_t bytes = kMaxCrossing;
  for (const Link& link : topology.links()) {
    const int64_t mbps = link.mbps > 0 ? link.mbps : kUnknownMbps;
    const uint64_t in_time = static_cast<uint64_t>(mbps) * kSliceMicroseconds / 8;
    bytes = std::min(bytes, link.kind == "shm" ? kShmCrossing : in_time);
  }
  return bytes;
}

/// Blocks of one slice that cross one link, one way.
uint64_t crossing_blocks(const Spec& spec, const Topology& topology) {
  if (spec.collective != Collective::ReduceScatter && spec.collective != Collective::AllGather) {
    return 1;
  }
  size_t largest = 1;
  for (const Cluster& cluster : topology.clusters()) {
    largest = std::max(largest, cluster.ranks.size());
  }
  return largest;
}

/// Ranks of other clusters than `rank`'s.
uint64_t strangers(const Topology& topology, int rank) {
  const auto own = static_cast<size_t>(topology.cluster_of(rank));
  return static_cast<uint64_t>(topology.n_ranks()) - topology.clusters()[own].ranks.size();
}

uint64_t ceil_div(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// a * b, or the largest number.
uint64_t saturated(uint64_t a, uint64_t b) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  return b != 0 && a > kMax / b ? kMax : a * b;
}

}  // namespace

Result<RankPlan> plan(int rank, const Spec& spec, const Topology& topology) {
  if (rank < 0 || rank >= topology.n_ranks()) {
    return error(Code::InvalidArgument, "rank %d is not one of the %d ranks", rank,
                 topology.n_ranks());
  }
  if (is_rooted(spec.collective) && (spec.root < 0 || spec.root >= topology.n_ranks())) {
    return error(Code::InvalidArgument, "root %d of %s is no rank: there are ranks 0 to %d",
                 spec.root, std::string(name_of(spec.collective)).c_str(), topology.n_ranks() - 1);
  }
  RankPlan plan = plan_collective(Builder(rank, spec, topology));
  if (plan.steps.size() > UINT16_MAX) {
    return error(Code::Unsupported,
                 "%.*s over %zu clusters takes %zu steps on rank %d, more than %d: use fewer or "
                 "larger clusters",
                 static_cast<int>(name_of(spec.collective).size()), name_of(spec.collective).data(),
                 topology.clusters().size(), plan.steps.size(), rank, UINT16_MAX);
  }
  return plan;
}

Choice choose(const Spec& spec, const Topology& topology, uint64_t count, DataType type) {
  const uint64_t bytes = saturated(count, size_of(type));
  uint64_t n_slices = 1;
  if (topology.clusters().size() > 1) {
    const uint64_t slice =
        std::max(kMinSlice, crossing_bytes(topology) / crossing_blocks(spec, topology));
    n_slices = std::clamp<uint64_t>(ceil_div(bytes, slice), 1, kMaxSlices);
  }
  // Slices of one size, the last included; a multiple of 64 bytes holds whole elements.
  const uint64_t slice = ceil_div(bytes, n_slices);
  Choice choice;
  choice.slice_bytes = std::max<uint64_t>(64, saturated(ceil_div(slice, 64), 64));
  return choice;
}

std::vector<int> peers(int rank, const Topology& topology) {
  // A broadcast's messages depend on its root's cluster alone; a reduction's are the same,
  // backwards.
  std::vector<Spec> specs = {{Collective::AllReduce},
                             {Collective::ReduceScatter},
                             {Collective::AllGather},
                             {Collective::Barrier}};
  for (const Cluster& cluster : topology.clusters()) {
    specs.push_back({Collective::Broadcast, cluster.ranks.front()});
  }
  std::set<int> ranks;
  for (const Spec& spec : specs) {
    for (const Step& step : plan_collective(Builder(rank, spec, topology)).steps) {
      if (step.peer >= 0) ranks.insert(step.peer);
    }
  }
  return {ranks.begin(), ranks.end()};
}

uint64_t least_bytes(const Spec& spec, const Topology& topology, uint64_t count, DataType type) {
  const uint64_t others = topology.clusters().size() - 1;
  const uint64_t bytes = count * size_of(type);
  switch (spec.collective) {
    case Collective::AllReduce:
      return 2 * others * bytes;
    case Collective::ReduceScatter:
    case Collective::AllGather:
      return others * bytes * static_cast<uint64_t>(topology.n_ranks());
    case Collective::Broadcast:
    case Collective::Reduce:
      return others * bytes;
    case Collective::Gather:
    case Collective::Scatter:
      return strangers(topology, spec.root) * bytes;
    case Collective::AllToAll: {
      uint64_t blocks = 0;
      for (int rank = 0; rank < topology.n_ranks(); ++rank) blocks += strangers(topology, rank);
      return blocks * bytes;
    }
    case Collective::Barrier:
    case Collective::PointToPoint:
      break;
  }
  return 0;
}

}  // namespace hetccl::plan
