// Topologies for tests: by hand from a layout such as "AAB", and random ones from a seed.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/topology.h"

namespace hetccl::test {

inline topology::RankInfo rank_info(int rank, std::string host, std::string label) {
  topology::RankInfo info;
  info.rank = rank;
  info.host = std::move(host);
  info.vendor = info.library = "host";
  info.reach.hosts = false;
  info.library_version = "1";
  info.label = std::move(label);
  return info;
}

/// Rank r is on host `layout[r]`; every host is a cluster with one NIC of 1 Gbit/s.
inline topology::Topology layout_topology(std::string_view layout) {
  std::vector<topology::RankInfo> infos;
  for (char host : layout) {
    infos.push_back(rank_info(static_cast<int>(infos.size()), std::string(1, host), ""));
    infos.back().nics = {{"eth0", "", 1000, 0}};
  }
  return topology::Topology::build(std::move(infos)).value();
}

/// 1 to 6 clusters of 1 to 5 ranks in random order: hosts and labels, one or several NICs, unequal,
/// unknown and far ones, and ranks without any; in half of them some clusters have no kernels, in
/// half some have device memory, in half the libraries of some exchange no messages.
inline topology::Topology random_topology(std::mt19937_64& random) {
  const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
  std::vector<std::pair<int, int>> places;  // cluster, member
  const int n_clusters = 1 + below(6);
  for (int c = 0; c < n_clusters; ++c) {
    for (int size = 1 + below(5), m = 0; m < size; ++m) places.emplace_back(c, m);
  }
  for (size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[random() % i]);
  const int clusters_per_host = 1 + below(2);
  const int nic_style = below(5);
  const uint64_t without_kernels = below(2) == 0 ? 0 : random();  // a bit for each cluster
  const uint64_t on_devices = below(2) == 0 ? 0 : random();
  const uint64_t without_exchange = below(2) == 0 ? 0 : random();
  constexpr int64_t kWindows[] = {0, 0, int64_t{4} << 20U, int64_t{24} << 20U};
  const int64_t window = kWindows[random() % 4];
  constexpr int64_t kSpeeds[] = {0, 1000, 2500, 10'000, 25'000, 100'000};
  std::vector<topology::RankInfo> infos;
  for (const auto& [c, member] : places) {
    infos.push_back(rank_info(static_cast<int>(infos.size()),
                              "host" + std::to_string(c / clusters_per_host),
                              std::to_string(c % clusters_per_host)));
    infos.back().kernels = (without_kernels >> static_cast<uint64_t>(c) & 1U) == 0;
    infos.back().host_access = (on_devices >> static_cast<uint64_t>(c) & 1U) == 0;
    infos.back().library_exchanges = (without_exchange >> static_cast<uint64_t>(c) & 1U) == 0;
    infos.back().window_bytes = window;
    std::vector<topology::Nic>& nics = infos.back().nics;
    if (nic_style == 1) nics = {{"eth0", "", 1000, 0}};
    if (nic_style == 2) nics = {{"eth0", "", 1000, member == 0 ? 0 : 1}};
    if (nic_style == 3) nics = {{"nic" + std::to_string(member), "", kSpeeds[1 + below(5)], 0}};
    if (nic_style == 4) {
      for (int n = below(3); n > 0; --n) {
        nics.push_back({"nic" + std::to_string(n), "", kSpeeds[below(6)], below(2)});
      }
    }
  }
  return topology::Topology::build(std::move(infos)).value();
}

}  // namespace hetccl::test
