#include "plan/planner.h"

#include <set>

#include "plan/builder.h"

namespace hetccl::plan {
namespace {

using topology::Topology;

/// Number of ranks in clusters other than `rank`'s.
uint64_t strangers(const Topology& topology, int rank) {
  const auto own = static_cast<size_t>(topology.cluster_of(rank));
  return static_cast<uint64_t>(topology.n_ranks()) - topology.clusters()[own].ranks.size();
}

}  // namespace

Result<RankPlan> plan(int rank, const Spec& spec, const Topology& topology, Algorithms table) {
  if (rank < 0 || rank >= topology.n_ranks()) {
    return error(ErrorCode::InvalidArgument, "rank %d is not one of the %d ranks", rank,
                 topology.n_ranks());
  }
  if (is_rooted(spec.collective) && (spec.root < 0 || spec.root >= topology.n_ranks())) {
    return error(ErrorCode::InvalidArgument, "root %d of %s is no rank: there are ranks 0 to %d",
                 spec.root, std::string(name_of(spec.collective)).c_str(), topology.n_ranks() - 1);
  }
  HETCCL_ASSIGN(const Algorithm* const row, find_algorithm(spec, topology, table));
  RankPlan plan = row->build(Builder(rank, spec, topology));
  plan.name = row->id;
  if (plan.steps.size() > UINT16_MAX) {
    return error(ErrorCode::Unsupported,
                 "%.*s over %zu clusters takes %zu steps on rank %d, more than %d: use fewer or "
                 "larger clusters",
                 static_cast<int>(name_of(spec.collective).size()), name_of(spec.collective).data(),
                 topology.clusters().size(), plan.steps.size(), rank, UINT16_MAX);
  }
  return plan;
}

std::vector<int> peers(int rank, const Topology& topology) {
  std::set<int> ranks;
  const auto add = [&](const Algorithm& row, const Spec& spec) {
    for (const Step& step : row.build(Builder(rank, spec, topology)).steps) {
      if (step.peer >= 0) ranks.insert(step.peer);
    }
  };
  for (uint8_t value = 0; value < static_cast<uint8_t>(Collective::PointToPoint); ++value) {
    Spec spec{static_cast<Collective>(value)};
    for (const Algorithm* row : find_algorithms(spec, topology)) {
      if (!row->connects_at_init) continue;
      // The channels of a rooted collective depend only on its root's cluster.
      const size_t n_roots = is_rooted(spec.collective) ? topology.clusters().size() : 1;
      for (size_t c = 0; c < n_roots; ++c) {
        spec.root = topology.clusters()[c].ranks.front();
        add(*row, spec);
      }
    }
  }
  // Windows need pinned memory, whose allocation may wait for the device's work; at init no work
  // runs.
  for (int other = 0; other < topology.n_ranks(); ++other) {
    if (topology.window(rank, other) > 0) ranks.insert(other);
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
