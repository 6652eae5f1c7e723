#include "plan/traffic.h"

#include <algorithm>
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

uint64_t slice_of(std::span<const RankPlan> plans, DataType type, uint64_t slice_bytes) {
  return round_up(slice_bytes / size_of(type), grain_of(type, plans[0].encoding));
}

/// Adds a rank's sent bytes to the loads of its NICs, in proportion to their rates; if a rate is
/// unknown, in equal parts.
void spread(const std::vector<topology::Nic>& cards, uint64_t bytes,
            std::map<std::string, CardLoad>& loads) {
  const bool known = std::all_of(cards.begin(), cards.end(),
                                 [](const topology::Nic& card) { return card.mbps > 0; });
  const auto weight = [&](const topology::Nic& card) {
    return known ? static_cast<double>(card.mbps) : 1.0;
  };
  double left = 0;
  for (const topology::Nic& card : cards) left += weight(card);
  for (const topology::Nic& card : cards) {
    const auto part = static_cast<uint64_t>(static_cast<double>(bytes) * weight(card) / left);
    CardLoad& load = loads[card.name];
    load.card = card.name;
    load.mbps = card.mbps;
    load.bytes += std::min(part, bytes);
    bytes -= std::min(part, bytes);
    left -= weight(card);
  }
}

}  // namespace

std::vector<CardLoad> card_loads(const topology::Topology& topology,
                                 std::span<const RankPlan> plans, uint64_t count, DataType type,
                                 uint64_t slice_bytes) {
  const uint64_t slice = slice_of(plans, type, slice_bytes);
  std::vector<std::string> hosts;
  std::map<std::string, std::map<std::string, CardLoad>> by_host;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const int self = static_cast<int>(rank);
    uint64_t bytes = 0;
    for (const Step& step : plans[rank].steps) {
      if (step.kind != StepKind::Send || topology.same_host(self, step.peer) ||
          topology.cluster_of(self) == topology.cluster_of(step.peer))
        continue;
      bytes += bytes_of_all(step.srcs[0], count, slice, type, plans[rank].encoding);
    }
    const std::string& host = topology.infos()[rank].host;
    if (!by_host.contains(host)) hosts.push_back(host);
    spread(topology.cards(self), bytes, by_host[host]);
  }
  std::vector<CardLoad> result;
  for (const std::string& host : hosts) {
    for (auto& [name, load] : by_host[host]) {
      load.host = host;
      result.push_back(std::move(load));
    }
  }
  return result;
}

std::vector<Traffic> traffic(const topology::Topology& topology, std::span<const RankPlan> plans,
                             uint64_t count, DataType type, uint64_t slice_bytes) {
  const uint64_t slice = slice_of(plans, type, slice_bytes);
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
