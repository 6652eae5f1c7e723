#include "topology/topology.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "topology/border.h"

namespace hetccl::topology {
namespace {

// Every pair of clusters has a Link, so the number of clusters is bounded.
constexpr int64_t kPage = 4096;
constexpr int64_t kLeastWindow = int64_t{1} << 20U;  // room for slices of messages
// With one partner a larger window is faster, up to this size. With several partners, larger
// windows together would not fit into the caches.
constexpr int64_t kMostOfOne = int64_t{26} << 20U;
constexpr int64_t kMostOfSeveral = int64_t{13} << 20U;
constexpr size_t kMaxClusters = 1024;

/// One vendor library can join ranks with equal keys, if they may be on different hosts.
using LibraryKey = std::tuple<std::string, std::string, std::string, std::string, std::string>;
/// One vendor library joins ranks with equal keys.
using ClusterKey = std::pair<LibraryKey, std::string>;

/// The architecture without features that one build of a library serves alike: HIP appends the
/// state of ECC and page faults, as in "gfx90a:sramecc+:xnack-".
std::string family_of(const std::string& architecture) {
  return architecture.substr(0, architecture.find(':'));
}

bool joins_by_label(const RankInfo& info) {
  return info.label_joins && !info.label.empty();
}

LibraryKey library_key(const RankInfo& info) {
  if (info.library == kNoLibrary)
    return {info.vendor, info.library, std::to_string(info.rank), "", info.label};
  if (joins_by_label(info)) return {info.vendor, info.library, "", "", info.label};
  const std::string family = info.reach.architectures ? "" : family_of(info.architecture);
  return {info.vendor, info.library, info.library_version, family, info.label};
}

ClusterKey cluster_key(const RankInfo& info) {
  const bool one_host = !info.reach.hosts || !info.library_crosses_hosts;
  return {library_key(info), one_host ? info.host : ""};
}

/// Why no library can join two ranks; empty if one can. Does not consider properties that
/// HETCCL_CLUSTER_JOIN overrides.
std::string obstacle(const RankInfo& a, const RankInfo& b) {
  const auto differ = [](const char* what, const std::string& left, const std::string& right) {
    return format("%s (%s, %s)", what, left.c_str(), right.c_str());
  };
  if (a.vendor != b.vendor) return differ("their vendors differ", a.vendor, b.vendor);
  if (a.library != b.library) return differ("their libraries differ", a.library, b.library);
  if (a.library == kNoLibrary && a.rank != b.rank) return "their device has no library";
  if (a.host == b.host) return "";
  if (!a.reach.hosts || !b.reach.hosts)
    return "they are on two hosts, which their library does not join";
  if (!a.library_crosses_hosts || !b.library_crosses_hosts)
    return "they are on two hosts, between which HETCCL_ENCRYPT=1 lets their library carry nothing";
  return "";
}

/// InvalidArgument if HETCCL_CLUSTER_JOIN asks for a cluster that is impossible.
Status check_labels(const std::vector<RankInfo>& infos) {
  std::map<std::string, const RankInfo*> first_of;
  for (const RankInfo& info : infos) {
    if (!joins_by_label(info)) continue;
    const RankInfo& first = *first_of.try_emplace(info.label, &info).first->second;
    const std::string why = obstacle(first, info);
    if (why.empty()) continue;
    return error(ErrorCode::InvalidArgument,
                 "HETCCL_CLUSTER_JOIN=1 asks for one cluster of ranks %d and %d, whose label is "
                 "\"%s\", but %s: give them different labels (HETCCL_CLUSTER)",
                 first.rank, info.rank, info.label.c_str(), why.c_str());
  }
  return {};
}

std::set<std::string> hosts_of(const Cluster& cluster, const std::vector<RankInfo>& infos) {
  std::set<std::string> hosts;
  for (int rank : cluster.ranks) hosts.insert(infos[static_cast<size_t>(rank)].host);
  return hosts;
}

std::vector<Link> links_between(const std::vector<Cluster>& clusters,
                                const std::vector<RankInfo>& infos, const AdaptorTraits& traits) {
  std::vector<int64_t> mbps;
  std::vector<std::set<std::string>> hosts;
  for (const Cluster& cluster : clusters) {
    mbps.push_back(border_mbps(cluster, infos));
    hosts.push_back(hosts_of(cluster, infos));
  }
  const bool shared_memory = std::all_of(infos.begin(), infos.end(), [](const RankInfo& info) {
    return info.shared_memory;  // all ranks agree on it
  });
  std::vector<Link> links;
  for (size_t a = 0; a < clusters.size(); ++a) {
    for (size_t b = a + 1; b < clusters.size(); ++b) {
      Link link;
      link.a = static_cast<int>(a);
      link.b = static_cast<int>(b);
      link.in_memory = shared_memory && hosts[a].size() == 1 && hosts[a] == hosts[b];
      link.kind = link.in_memory ? traits.in_memory : traits.by_network;
      if (!link.in_memory) link.mbps = std::min(mbps[a], mbps[b]);
      links.push_back(std::move(link));
    }
  }
  return links;
}

/// Whether both are known to use the same device.
bool on_one_device(const RankInfo& a, const RankInfo& b) {
  return !a.bus_id.empty() && a.bus_id == b.bus_id && a.host == b.host;
}

/// Bytes of each rank's window memory for one partner: a rank of another cluster on its host that
/// has window memory too. If a device has partners of both kinds (device, host), each kind gets a
/// half. Ranks whose memory hosts reach need no window between each other.
std::vector<WindowShares> window_shares(const std::vector<RankInfo>& infos,
                                        const std::vector<int>& cluster_of) {
  struct Count {
    int64_t devices = 0, hosts = 0;
    void add(const RankInfo& info) { ++(info.host_access ? hosts : devices); }
  };
  std::map<std::string, Count> on_host;
  std::map<std::pair<std::string, int>, Count> in_cluster;
  for (size_t r = 0; r < infos.size(); ++r) {
    if (infos[r].window_bytes == 0) continue;
    on_host[infos[r].host].add(infos[r]);
    in_cluster[{infos[r].host, cluster_of[r]}].add(infos[r]);
  }
  std::vector<WindowShares> shares(infos.size());
  for (size_t r = 0; r < infos.size(); ++r) {
    const RankInfo& info = infos[r];
    if (info.window_bytes == 0) continue;
    const Count& all = on_host[info.host];
    const Count& own = in_cluster[{info.host, cluster_of[r]}];
    const int64_t devices = all.devices - own.devices;
    const int64_t hosts = info.host_access ? 0 : all.hosts - own.hosts;
    const int64_t bytes = info.window_bytes / (devices > 0 && hosts > 0 ? 2 : 1);
    const auto share = [&](int64_t partners) {
      const int64_t most = std::max(kMostOfOne / partners, kMostOfSeveral);
      return std::min(bytes / partners, most) / kPage * kPage;
    };
    if (devices > 0) shares[r].device = share(devices);
    if (hosts > 0) shares[r].host = share(hosts);
  }
  return shares;
}

}  // namespace

Result<Topology> Topology::build(std::vector<RankInfo> infos, const AdaptorTraits& traits) {
  if (infos.empty()) return error(ErrorCode::InvalidArgument, "a topology needs at least one rank");
  if (infos.size() > size_t{kMaxRanks}) {
    return error(ErrorCode::InvalidArgument, "%zu ranks: a topology holds at most %zu",
                 infos.size(), size_t{kMaxRanks});
  }
  Topology topology;
  std::map<ClusterKey, size_t> by_key;
  for (size_t r = 0; r < infos.size(); ++r) {
    if (infos[r].rank != static_cast<int>(r)) {
      return error(ErrorCode::InvalidArgument,
                   "the description at place %zu says it is of rank %d: every rank from 0 to %zu "
                   "must describe itself once, in order",
                   r, infos[r].rank, infos.size() - 1);
    }
    const auto [entry, is_new] =
        by_key.try_emplace(cluster_key(infos[r]), topology.clusters_.size());
    if (is_new) {
      Cluster& fresh = topology.clusters_.emplace_back();
      fresh.vendor = infos[r].vendor;
      fresh.label = infos[r].label;
    }
    Cluster& cluster = topology.clusters_[entry->second];
    topology.cluster_of_.push_back(static_cast<int>(entry->second));
    topology.local_rank_.push_back(static_cast<int>(cluster.ranks.size()));
    cluster.ranks.push_back(static_cast<int>(r));
    cluster.kernels = cluster.kernels && infos[r].kernels;
  }
  if (topology.clusters_.size() > kMaxClusters) {
    return error(ErrorCode::InvalidArgument,
                 "the %zu ranks form %zu clusters, more than %zu: check that ranks of one kind "
                 "have the same library version, and host ranks the same host and label",
                 infos.size(), topology.clusters_.size(), kMaxClusters);
  }
  HETCCL_TRY(check_labels(infos));
  for (Cluster& cluster : topology.clusters_) find_border(cluster, infos);
  topology.links_ = links_between(topology.clusters_, infos, traits);
  topology.window_shares_ = window_shares(infos, topology.cluster_of_);
  topology.infos_ = std::move(infos);
  topology.find_capabilities();
  return topology;
}

void Topology::find_capabilities() {
  for (const RankInfo& info : infos_) {
    if (!reduces_by_library(info.rank)) continue;
    reductions_ &= info.library_reduces;
    libraries_can_send_ = libraries_can_send_ && info.library_sends;
  }
  for (Cluster& cluster : clusters_) {
    cluster.exchanges = cluster.ranks.size() > 1 &&
                        std::all_of(cluster.ranks.begin(), cluster.ranks.end(), [&](int rank) {
                          return infos_[static_cast<size_t>(rank)].library_exchanges;
                        });
  }
}

Status Topology::check(const std::vector<Measurement>& measured) const {
  const auto n = static_cast<int>(clusters_.size());
  for (const Measurement& one : measured) {
    if (one.a >= 0 && one.a <= one.b && one.b < n) continue;
    return error(ErrorCode::InvalidArgument,
                 "a measurement between clusters %d and %d: there are clusters 0 to %d", one.a,
                 one.b, n - 1);
  }
  return {};
}

Result<Topology> Topology::with(std::vector<Measurement> measured) const {
  HETCCL_TRY(check(measured));
  Topology topology = *this;
  topology.measured_ = std::move(measured);
  return topology;
}

std::vector<Nic> Topology::cards(int rank) const {
  const Cluster& cluster = clusters_[static_cast<size_t>(cluster_of(rank))];
  std::vector<Nic> found;
  for (int place : cluster.cards[static_cast<size_t>(local_rank(rank))])
    found.push_back(infos_[static_cast<size_t>(rank)].nics[static_cast<size_t>(place)]);
  return found;
}

bool Topology::split_by_host() const {
  std::map<LibraryKey, std::string> host_of;
  return std::any_of(infos_.begin(), infos_.end(), [&](const RankInfo& info) {
    if (!info.reach.hosts || info.library_crosses_hosts) return false;
    return host_of.try_emplace(library_key(info), info.host).first->second != info.host;
  });
}

int Topology::shares_device(int rank) const {
  const RankInfo& mine = infos_[static_cast<size_t>(rank)];
  const auto other = std::find_if(infos_.begin(), infos_.end(), [&](const RankInfo& info) {
    return info.rank != rank && info.pid == mine.pid && on_one_device(info, mine);
  });
  return other == infos_.end() ? -1 : other->rank;
}

bool Topology::has_device_alone(int rank) const {
  const RankInfo& mine = infos_[static_cast<size_t>(rank)];
  return !mine.bus_id.empty() &&
         std::none_of(infos_.begin(), infos_.end(), [&](const RankInfo& info) {
           return info.pid != mine.pid && on_one_device(info, mine);
         });
}

bool Topology::kernels_everywhere() const {
  return std::all_of(clusters_.begin(), clusters_.end(),
                     [](const Cluster& cluster) { return cluster.kernels; });
}

bool Topology::host_access_everywhere() const {
  return std::all_of(infos_.begin(), infos_.end(),
                     [](const RankInfo& info) { return info.host_access; });
}

int Topology::devices_beside_hosts() const {
  if (clusters_.size() != 2 || !kernels_everywhere()) return -1;
  const auto host_access = [&](size_t cluster) {
    return infos_[static_cast<size_t>(clusters_[cluster].ranks.front())].host_access;
  };
  if (host_access(0) == host_access(1)) return -1;
  return host_access(0) ? 1 : 0;
}

bool Topology::reduces_by_library(int rank) const {
  return clusters_[static_cast<size_t>(cluster_of(rank))].ranks.size() > 1;
}

bool Topology::same_host(int rank_a, int rank_b) const {
  return infos_[static_cast<size_t>(rank_a)].host == infos_[static_cast<size_t>(rank_b)].host;
}

int64_t Topology::window(int rank_a, int rank_b) const {
  if (!same_host(rank_a, rank_b) || cluster_of(rank_a) == cluster_of(rank_b)) return 0;
  const auto share = [&](int of, int with) {
    const WindowShares& shares = window_shares_[static_cast<size_t>(of)];
    return infos_[static_cast<size_t>(with)].host_access ? shares.host : shares.device;
  };
  const int64_t bytes = std::min(share(rank_a, rank_b), share(rank_b, rank_a));
  return bytes < kLeastWindow ? 0 : bytes;
}

}  // namespace hetccl::topology
