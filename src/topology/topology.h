// From what every rank says of itself to the one graph that all ranks agree on. Pure functions, no
// I/O (see comm/card.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/reduction_set.h"
#include "base/status.h"

namespace hetccl::topology {

/// A network card, as one rank sees it.
struct Nic {
  std::string name;     ///< "eth0", "mlx5_0"
  std::string address;  ///< text, for people
  int64_t mbps = 0;     ///< 0: unknown
  int distance = 0;     ///< from the rank's device: 0 nearest
  bool operator==(const Nic&) const = default;
};

/// Which ranks of one vendor and version a vendor's library can join.
struct LibraryReach {
  bool hosts = true;           ///< those of several hosts
  bool architectures = false;  ///< those whose devices differ in architecture
  bool operator==(const LibraryReach&) const = default;
};

/// What the topology needs to know of adaptors, which comm alone names.
struct AdaptorTraits {
  struct Library {
    LibraryReach reach;
    /// On devices of an architecture, which may be unknown (empty).
    std::function<ReductionSet(std::string_view architecture)> reduces = [](std::string_view) {
      return ReductionSet::all();
    };
  };
  /// By vendor, for descriptions that do not say it.
  std::map<std::string, Library> libraries;
  std::string in_memory = "memory";    ///< the transport of links in memory
  std::string by_network = "network";  ///< that of other links
};

inline constexpr int64_t kMaxRanks = 65'536;

/// The library of a rank that has none, and is a cluster alone.
inline constexpr std::string_view kNoLibrary = "none";

/// What one rank publishes at init.
struct RankInfo {
  int rank = 0;
  std::string
      host;  ///< identity: boot id, network and PID namespace, user; HETCCL_HOSTID overrides
  std::string host_name;  ///< for people
  int32_t pid = 0;
  std::string vendor;  ///< "host", "cuda", "hip"
  std::string model;
  std::string architecture;
  std::string bus_id;   ///< empty for host
  std::string library;  ///< vendor CCL, "host" for hosts; see kNoLibrary
  std::string library_version;
  std::string label;         ///< HETCCL_CLUSTER
  bool label_joins = false;  ///< HETCCL_CLUSTER_JOIN: all ranks of the label form one cluster
  bool kernels = true;       ///< the device can reduce by itself, outside the vendor's library
  ReductionSet library_reduces = ReductionSet::all();  ///< with the other ranks of its cluster
  bool library_sends = true;          ///< from one rank of its cluster to one other
  bool library_exchanges = true;      ///< messages between all ranks of its cluster in one call
  bool host_access = true;            ///< hosts and transports can touch the device's memory
  LibraryReach reach;                 ///< of its vendor's library
  bool library_crosses_hosts = true;  ///< that library may carry data between hosts
  bool shared_memory = true;          ///< it talks to ranks of its host through memory (HETCCL_SHM)
  int64_t window_bytes = 0;  ///< shared with ranks of its host in other clusters, all together
  std::vector<Nic> nics;
  bool operator==(const RankInfo&) const = default;
};

/// A maximal group that one vendor library can really join.
struct Cluster {
  std::string vendor;
  std::string label;
  std::vector<int>
      ranks;  ///< ascending global ranks; the position is the rank in the vendor communicator
  std::vector<int>
      border;  ///< positions in `ranks` of those nearest to a NIC, ascending; never empty
  std::vector<uint32_t>
      shares;  ///< per border rank, its part of the cluster's bandwidth (small integers, gcd 1)
  /// Per rank, the cards that it uses: places in its RankInfo::nics, fastest first.
  std::vector<std::vector<int>> cards;
  bool kernels = true;       ///< of all ranks
  bool exchanges = false;    ///< it has several ranks, whose library exchanges messages on each
  bool single_flow = false;  ///< its border ranks share one card, which one flow fills
  bool operator==(const Cluster&) const = default;
};

/// Bytes of a rank's window memory for one other rank, by that one's kind.
struct WindowShares {
  int64_t device = 0;  ///< that hosts do not reach
  int64_t host = 0;
  bool operator==(const WindowShares&) const = default;
};

/// What joins two clusters. `a` < `b`.
struct Link {
  int a = 0, b = 0;
  std::string kind;        ///< its transport's name, for people
  int64_t mbps = 0;        ///< the slower side's sum over border NICs; 0: unknown
  bool in_memory = false;  ///< both lie on one host, whose ranks share memory
  bool operator==(const Link&) const = default;
};

/// What was measured between two clusters, one rank of each at work, or, where `a` is `b`, by the
/// first rank of that cluster with all others.
struct Measurement {
  int a = 0, b = 0;        ///< a <= b
  int64_t latency_ns = 0;  ///< of a small message, one way; with all: of a small all-reduce
  int64_t mbps = 0;        ///< each way, both at once; with all: 0
  bool operator==(const Measurement&) const = default;
};

/// Immutable. Clusters are ordered by their lowest rank, so every rank builds the same value from
/// the same infos.
class Topology {
 public:
  /// `infos[r].rank == r` for all r, else InvalidArgument naming the rank. So are two ranks whose
  /// label joins them, and whom no library can join.
  static Result<Topology> build(std::vector<RankInfo> infos, const AdaptorTraits& traits = {});
  /// Bounded and checked: for files and tools.
  static Result<Topology> from_json(std::string_view text, const AdaptorTraits& traits = {});
  [[nodiscard]] std::string to_json() const;

  [[nodiscard]] int n_ranks() const { return static_cast<int>(infos_.size()); }
  [[nodiscard]] const std::vector<RankInfo>& infos() const { return infos_; }
  [[nodiscard]] const std::vector<Cluster>& clusters() const { return clusters_; }
  [[nodiscard]] const std::vector<Link>& links() const { return links_; }
  /// What a job has measured, if this was read from its description.
  [[nodiscard]] const std::vector<Measurement>& measured() const { return measured_; }
  /// InvalidArgument for a measurement of no cluster.
  [[nodiscard]] Status check(const std::vector<Measurement>& measured) const;
  /// The same with these measurements, which are checked.
  [[nodiscard]] Result<Topology> with(std::vector<Measurement> measured) const;
  /// The cards by which `rank` sends and receives between hosts, fastest first.
  [[nodiscard]] std::vector<Nic> cards(int rank) const;
  [[nodiscard]] int cluster_of(int rank) const { return cluster_of_[static_cast<size_t>(rank)]; }
  /// Position of `rank` in its cluster.
  [[nodiscard]] int local_rank(int rank) const { return local_rank_[static_cast<size_t>(rank)]; }
  /// Whether ranks that one vendor's library could join form a cluster on each of their hosts,
  /// since it may carry nothing between hosts.
  [[nodiscard]] bool split_by_host() const;
  /// The first other rank in `rank`'s process on its device, or -1: their streams share its queues.
  [[nodiscard]] int shares_device(int rank) const;
  /// Whether it is known that no other process has a rank on `rank`'s device: the two would take
  /// turns on it.
  [[nodiscard]] bool has_device_alone(int rank) const;
  /// Can every device reduce by itself?
  [[nodiscard]] bool kernels_everywhere() const;
  /// Do hosts and transports reach every device's memory?
  [[nodiscard]] bool host_access_everywhere() const;
  /// Of two clusters, one of whose memory hosts reach, the other, where every device can reduce by
  /// itself: its devices have the faster memory to add in. Else -1.
  [[nodiscard]] int devices_beside_hosts() const;
  /// Whether `rank` reduces by its vendor's library: its cluster has several ranks.
  [[nodiscard]] bool reduces_by_library(int rank) const;
  /// The reductions of which all libraries that join ranks are capable. Outside them everything is
  /// reduced, by devices or hosts.
  [[nodiscard]] const ReductionSet& reductions() const { return reductions_; }
  /// Whether every library that joins ranks sends from one rank to one other.
  [[nodiscard]] bool libraries_send() const { return libraries_send_; }
  [[nodiscard]] bool same_host(int rank_a, int rank_b) const;
  /// Bytes of the memory that both ranks' devices reach: an equal part of what each of them has, or
  /// 0 where they have none.
  [[nodiscard]] int64_t window(int rank_a, int rank_b) const;
  bool operator==(const Topology&) const = default;

 private:
  void find_capabilities();

  std::vector<RankInfo> infos_;
  std::vector<Cluster> clusters_;
  std::vector<Link> links_;
  std::vector<Measurement> measured_;
  std::vector<int> cluster_of_, local_rank_;
  std::vector<WindowShares> window_shares_;  // by rank
  ReductionSet reductions_ = ReductionSet::all();
  bool libraries_send_ = true;
};

/// Wire form of what one rank has measured.
std::string to_json(const std::vector<Measurement>& measured);
/// Bounded and checked: the bytes come from another process of the job with that topology.
Result<std::vector<Measurement>> measurements_from_json(std::string_view text,
                                                        const Topology& topology);

/// Wire form of one RankInfo for the bootstrap's all-gather.
std::string to_json(const RankInfo& info);
/// Bounded and checked: the bytes come from another process.
Result<RankInfo> rank_info_from_json(std::string_view text);

}  // namespace hetccl::topology
