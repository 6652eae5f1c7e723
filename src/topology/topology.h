// Builds one graph, the same on all ranks, from the facts that every rank publishes. Pure
// functions, no I/O (see comm/card.h).
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

/// A network card (NIC), as one rank sees it.
struct Nic {
  std::string name;     ///< "eth0", "mlx5_0"
  std::string address;  ///< for messages
  int64_t mbps = 0;     ///< 0: unknown
  int distance = 0;     ///< to the rank's device; 0: nearest
  bool operator==(const Nic&) const = default;
};

/// Limits of a vendor's library in joining ranks of one vendor and version.
struct LibraryReach {
  bool hosts = true;           ///< can join ranks of several hosts
  bool architectures = false;  ///< can join devices of different architectures
  bool operator==(const LibraryReach&) const = default;
};

/// Properties of adaptors that the topology needs. Only comm names adaptors.
struct AdaptorTraits {
  struct Library {
    LibraryReach reach;
    /// By architecture, which may be unknown (empty).
    std::function<ReductionSet(std::string_view architecture)> reduces = [](std::string_view) {
      return ReductionSet::all();
    };
  };
  /// By vendor; used for descriptions that omit these properties.
  std::map<std::string, Library> libraries;
  std::string in_memory = "memory";    ///< transport of links within one host's memory
  std::string by_network = "network";  ///< transport of other links
};

inline constexpr int64_t kMaxRanks = 65'536;

/// Library name of a rank without a library, which is a cluster of its own.
inline constexpr std::string_view kNoLibrary = "none";

/// Facts that each rank publishes at init.
struct RankInfo {
  int rank = 0;
  std::string
      host;  ///< identity: boot id, network and PID namespace, user; HETCCL_HOSTID overrides
  std::string host_name;  ///< for messages
  int32_t pid = 0;
  std::string vendor;  ///< "host", "cuda", "hip"
  std::string model;
  std::string architecture;
  std::string bus_id;   ///< empty for host
  std::string library;  ///< vendor's collective library, "host" for hosts; see kNoLibrary
  std::string library_version;
  std::string label;         ///< HETCCL_CLUSTER
  bool label_joins = false;  ///< HETCCL_CLUSTER_JOIN: all ranks of the label form one cluster
  bool kernels = true;       ///< the device can reduce outside the vendor's library
  ReductionSet library_reduces = ReductionSet::all();  ///< within its cluster
  bool library_sends = true;          ///< the library sends from one rank of its cluster to another
  bool library_exchanges = true;      ///< the library exchanges messages between all ranks of its
                                      ///< cluster in one call
  bool host_access = true;            ///< hosts and transports can access the device's memory
  LibraryReach reach;                 ///< of the vendor's library
  bool library_crosses_hosts = true;  ///< the library may carry data between hosts
  bool shared_memory = true;          ///< it exchanges data with ranks of its host through memory
                                      ///< (HETCCL_SHM)
  int64_t window_bytes = 0;  ///< total for windows with ranks of its host in other clusters
  std::vector<Nic> nics;
  bool operator==(const RankInfo&) const = default;
};

/// A maximal group of ranks that one vendor library can join.
struct Cluster {
  std::string vendor;
  std::string label;
  std::vector<int>
      ranks;  ///< ascending global ranks; the position is the rank in the vendor communicator
  std::vector<int>
      border;  ///< positions in `ranks` of the ranks nearest to a NIC, ascending; never empty
  std::vector<uint32_t>
      shares;  ///< by border rank: its part of the cluster's bandwidth (small integers, gcd 1)
  /// By rank: the NICs that it uses, as indices into its RankInfo::nics, fastest first.
  std::vector<std::vector<int>> cards;
  bool kernels = true;       ///< all ranks have kernels
  bool exchanges = false;    ///< it has several ranks, and the library of each exchanges messages
  bool single_flow = false;  ///< its border ranks share one NIC that a single flow fills
  bool operator==(const Cluster&) const = default;
};

/// Bytes of a rank's window memory for one partner, by the partner's kind.
struct WindowShares {
  int64_t device = 0;  ///< for a device whose memory hosts do not reach
  int64_t host = 0;
  bool operator==(const WindowShares&) const = default;
};

/// The link between two clusters; `a` < `b`.
struct Link {
  int a = 0, b = 0;
  std::string kind;        ///< the transport's name, for messages
  int64_t mbps = 0;        ///< the smaller of both sides' sums over border NICs; 0: unknown
  bool in_memory = false;  ///< both are on one host, whose ranks share memory
  bool operator==(const Link&) const = default;
};

/// A measurement between two clusters, with one active rank in each; or, if `a` is `b`, between the
/// first rank of that cluster and all others.
struct Measurement {
  int a = 0, b = 0;        ///< a <= b
  int64_t latency_ns = 0;  ///< of a small message, one way; if a == b: of a small all-reduce
  int64_t mbps = 0;        ///< in each direction, both at once; if a == b: 0
  bool operator==(const Measurement&) const = default;
};

/// Immutable. Clusters are ordered by their lowest rank, so every rank builds the same value from
/// the same infos.
class Topology {
 public:
  /// InvalidArgument, naming the rank, unless `infos[r].rank == r` for all r. InvalidArgument also
  /// if a label joins two ranks that no library can join.
  static Result<Topology> build(std::vector<RankInfo> infos, const AdaptorTraits& traits = {});
  /// Parses a bounded, checked text from a file or tool.
  static Result<Topology> from_json(std::string_view text, const AdaptorTraits& traits = {});
  [[nodiscard]] std::string to_json() const;

  [[nodiscard]] int n_ranks() const { return static_cast<int>(infos_.size()); }
  [[nodiscard]] const std::vector<RankInfo>& infos() const { return infos_; }
  [[nodiscard]] const std::vector<Cluster>& clusters() const { return clusters_; }
  [[nodiscard]] const std::vector<Link>& links() const { return links_; }
  /// The job's measurements, if this was read from a description that has them.
  [[nodiscard]] const std::vector<Measurement>& measured() const { return measured_; }
  /// InvalidArgument if a measurement names a cluster that does not exist.
  [[nodiscard]] Status check(const std::vector<Measurement>& measured) const;
  /// Returns a copy with these measurements, which are checked.
  [[nodiscard]] Result<Topology> with(std::vector<Measurement> measured) const;
  /// The NICs through which `rank` exchanges data with other hosts, fastest first.
  [[nodiscard]] std::vector<Nic> cards(int rank) const;
  [[nodiscard]] int cluster_of(int rank) const { return cluster_of_[static_cast<size_t>(rank)]; }
  /// Position of `rank` in its cluster.
  [[nodiscard]] int local_rank(int rank) const { return local_rank_[static_cast<size_t>(rank)]; }
  /// Whether ranks that one vendor library could join are split into a cluster per host, because
  /// the library may not carry data between hosts.
  [[nodiscard]] bool split_by_host() const;
  /// The first other rank in `rank`'s process on its device, or -1. Both ranks' streams share the
  /// device's queues.
  [[nodiscard]] int shares_device(int rank) const;
  /// Whether it is certain that no other process has a rank on `rank`'s device. (Two processes
  /// would take turns on it.)
  [[nodiscard]] bool has_device_alone(int rank) const;
  /// Whether every device can reduce outside the vendor's library.
  [[nodiscard]] bool kernels_everywhere() const;
  /// Whether hosts and transports reach every device's memory.
  [[nodiscard]] bool host_access_everywhere() const;
  /// If there are two clusters, all devices can reduce, and hosts reach the memory of just one of
  /// the clusters: returns the other one, whose devices have the faster memory to add in. Else -1.
  [[nodiscard]] int devices_beside_hosts() const;
  /// Whether `rank`'s vendor library reduces: its cluster has several ranks.
  [[nodiscard]] bool reduces_by_library(int rank) const;
  /// The reductions that all libraries which join ranks can do. Devices or hosts do all others.
  [[nodiscard]] const ReductionSet& reductions() const { return reductions_; }
  /// Whether every library that joins ranks can send from one rank to another.
  [[nodiscard]] bool libraries_can_send() const { return libraries_can_send_; }
  [[nodiscard]] bool same_host(int rank_a, int rank_b) const;
  /// Bytes of the memory that both ranks' devices reach: an equal part of each one's window memory,
  /// or 0 if one has none.
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
  bool libraries_can_send_ = true;
};

/// Serialises the measurements of one rank.
std::string to_json(const std::vector<Measurement>& measured);
/// Parses bytes from another process of the job with that topology; bounded and checked.
Result<std::vector<Measurement>> measurements_from_json(std::string_view text,
                                                        const Topology& topology);

/// Serialises one RankInfo for the bootstrap's all-gather.
std::string to_json(const RankInfo& info);
/// Parses bytes from another process; bounded and checked.
Result<RankInfo> rank_info_from_json(std::string_view text);

}  // namespace hetccl::topology
