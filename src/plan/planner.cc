#include "plan/planner.h"

#include <numeric>
#include <set>

#include "plan/call.h"
#include "plan/collectives.h"

namespace hetccl::plan {
namespace {

using topology::Cluster;
using topology::Topology;

RankPlan plan_all_reduce(Builder builder) {
  const int devices = builder.topology().devices_beside_hosts();
  const bool one_hop =
      builder.spec().shape == Shape::Latency || (builder.n_clusters() == 2 && devices < 0);
  // Only kernels are known to evaluate one expression alike everywhere.
  if (one_hop && builder.kernels_everywhere()) return plan_all_reduce_exchange(std::move(builder));
  std::vector<int> owners = {devices};
  if (devices < 0) {
    owners.resize(builder.topology().clusters().size());
    std::iota(owners.begin(), owners.end(), 0);
  }
  return plan_all_reduce_owner(std::move(builder), std::move(owners));
}

RankPlan plan_collective(Builder builder) {
  if (is_pairwise(builder.spec().collective)) return plan_direct(std::move(builder));
  if (builder.n_clusters() == 1) return plan_one_cluster(std::move(builder));
  // Over two clusters one hop is also the least that any link can carry.
  const bool one_hop = builder.n_clusters() == 2 || builder.spec().shape == Shape::Latency;
  switch (builder.spec().collective) {
    case Collective::AllReduce:
      return plan_all_reduce(std::move(builder));
    case Collective::ReduceScatter:
      return one_hop ? plan_reduce_scatter_direct(std::move(builder))
                     : plan_reduce_scatter_ring(std::move(builder));
    case Collective::AllGather:
      return one_hop ? plan_all_gather_direct(std::move(builder))
                     : plan_all_gather_ring(std::move(builder));
    case Collective::Broadcast:
      // The chain's first hop comes from all border ranks, not from the root alone.
      return builder.spec().shape == Shape::Latency ? plan_broadcast_star(std::move(builder))
                                                    : plan_broadcast_chain(std::move(builder));
    case Collective::Reduce:
      return builder.spec().shape == Shape::Latency ? plan_reduce_star(std::move(builder))
                                                    : plan_reduce_chain(std::move(builder));
    default:
      return plan_barrier(std::move(builder));
  }
}

/// Ranks of other clusters than `rank`'s.
uint64_t strangers(const Topology& topology, int rank) {
  const auto own = static_cast<size_t>(topology.cluster_of(rank));
  return static_cast<uint64_t>(topology.n_ranks()) - topology.clusters()[own].ranks.size();
}

}  // namespace

std::string_view name_of(Shape shape) {
  return shape == Shape::Latency ? "latency" : "bandwidth";
}

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

std::vector<int> peers(int rank, const Topology& topology) {
  // A broadcast's messages depend on its root's cluster alone; so do a reduction's, which are the
  // same, backwards, unless some cluster reduces by its vendor's library.
  std::vector<Spec> specs = {{Collective::AllReduce},
                             {Collective::ReduceScatter},
                             {Collective::AllGather},
                             {Collective::Barrier}};
  for (const Cluster& cluster : topology.clusters()) {
    specs.push_back({Collective::Broadcast, cluster.ranks.front()});
    if (!topology.kernels_everywhere())
      specs.push_back({Collective::Reduce, cluster.ranks.front()});
  }
  std::set<int> ranks;
  for (Spec spec : specs) {
    for (const Shape shape : {Shape::Bandwidth, Shape::Latency}) {
      spec.shape = shape;
      if (is_rooted(spec.collective) && shape == Shape::Latency) continue;
      for (const Step& step : plan_collective(Builder(rank, spec, topology)).steps) {
        if (step.peer >= 0) ranks.insert(step.peer);
      }
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
