#include "plan/traffic.h"

#include <map>

#include "base/divide.h"

namespace hetccl::plan {
namespace {

/// Bytes of `region` over all slices of a call.
uint64_t bytes_of_all(const Region& region, uint64_t count, uint64_t slice, DataType type,
                      const Encoding& encoding) {
  const uint64_t grain = grain_of(type, encoding);
  const auto within = [&](uint64_t length) {
    return bytes_of(region, part_of(region, length, length, 0, grain), type, encoding);
  };
  return count / slice * within(slice) + within(count % slice);
}

}  // namespace

std::vector<Traffic> traffic(const topology::Topology& topology, std::span<const RankPlan> plans,
                             uint64_t count, DataType type, uint64_t slice_bytes) {
  const uint64_t slice = round_up(slice_bytes / size_of(type), grain_of(type, plans[0].encoding));
  std::map<std::pair<int, int>, Traffic> pairs;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const int from = topology.cluster_of(static_cast<int>(rank));
    for (const Step& step : plans[rank].steps) {
      if (step.kind != StepKind::Send) continue;
      const int to = topology.cluster_of(step.peer);
      if (to == from) continue;
      Traffic& pair = pairs.try_emplace({from, to}, Traffic{from, to}).first->second;
      ++pair.messages;
      pair.bytes += bytes_of_all(step.srcs[0], count, slice, type, plans[rank].encoding);
    }
  }
  std::vector<Traffic> result;
  for (const auto& [clusters, pair] : pairs) result.push_back(pair);
  return result;
}

}  // namespace hetccl::plan
