#include "plan/traffic.h"

#include <map>

namespace hetccl::plan {
namespace {

/// Elements of `region` over all slices of a call.
uint64_t elements_of(const Region& region, uint64_t count, uint64_t slice, uint64_t grain) {
  const auto within = [&](uint64_t length) {
    return element(region.end, length, grain) - element(region.begin, length, grain);
  };
  return region.blocks * (count / slice * within(slice) + within(count % slice));
}

}  // namespace

std::vector<Traffic> traffic(const topology::Topology& topology, std::span<const RankPlan> plans,
                             uint64_t count, DataType type, uint64_t slice_bytes) {
  const uint64_t slice = slice_bytes / size_of(type), grain = grain_of(type);
  std::map<std::pair<int, int>, Traffic> pairs;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const int from = topology.cluster_of(static_cast<int>(rank));
    for (const Step& step : plans[rank].steps) {
      if (step.kind != StepKind::Send) continue;
      const int to = topology.cluster_of(step.peer);
      if (to == from) continue;
      Traffic& pair = pairs.try_emplace({from, to}, Traffic{from, to}).first->second;
      ++pair.messages;
      pair.bytes += elements_of(step.srcs[0], count, slice, grain) * size_of(type);
    }
  }
  std::vector<Traffic> result;
  for (const auto& [clusters, pair] : pairs) result.push_back(pair);
  return result;
}

}  // namespace hetccl::plan
