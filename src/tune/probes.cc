#include "tune/probes.h"

#include <set>
#include <string>
#include <utility>

namespace hetccl::tune {

std::vector<LinkToMeasure> links_to_measure(const topology::Topology& topology, bool all) {
  const auto leader = [&](int c) {
    const topology::Cluster& cluster = topology.clusters()[static_cast<size_t>(c)];
    return cluster.ranks[static_cast<size_t>(cluster.border.front())];
  };
  std::set<std::pair<std::string, int64_t>> classes;
  std::vector<LinkToMeasure> links;
  for (const topology::Link& link : topology.links()) {
    const bool is_first = classes.insert({link.kind, link.mbps}).second;
    if (!is_first && !all) continue;
    links.push_back({link.a, link.b, leader(link.a), leader(link.b)});
  }
  return links;
}

}  // namespace hetccl::tune
