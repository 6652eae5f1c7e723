// What a collective will cost: what every call costs, hops, and the bytes through the narrowest
// cluster. How long bytes take inside clusters is left out, since all plans of one collective share
// it, but for sums that hosts make in one plan and devices in the other.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "topology/topology.h"

namespace hetccl::tune {

/// One way between clusters: seconds until a message's first byte has arrived, and bytes a second.
struct LinkCost {
  double latency = 0;
  double bandwidth = 0;
};

/// What a plan asks of the links, per block of a slice.
struct Load {
  int hops = 0;
  double blocks = 0;            ///< in or out of the cluster that has most to move
  double seconds_per_byte = 0;  ///< of a block: of the cluster that takes longest
};

/// What is known of one topology's links. Immutable.
class CostModel {
 public:
  /// `measured` may be empty: then constants, and the bandwidths that ranks have published.
  /// `deterministic`: windows do not count, of which one communicator has more than the next.
  CostModel(const topology::Topology& topology, const std::vector<topology::Measurement>& measured,
            bool deterministic);

  [[nodiscard]] Load load(const plan::Spec& spec) const;
  /// Seconds for blocks of `bytes` in `slices` pieces that follow each other from hop to hop.
  [[nodiscard]] double seconds(const Load& load, uint64_t bytes, uint64_t slices) const;
  /// The slowest way between two clusters. Bandwidth is 0 where there is one cluster alone.
  [[nodiscard]] const LinkCost& slowest() const { return slowest_; }
  /// Whether all clusters share one host's memory.
  [[nodiscard]] bool in_memory() const { return in_memory_; }
  /// Of the memory that two devices share, the least; 0 where they share none.
  [[nodiscard]] uint64_t window() const { return window_; }
  /// Whether messages pass through devices' streams, to and from memory that transports reach.
  [[nodiscard]] bool on_streams() const { return on_streams_; }
  [[nodiscard]] size_t n_clusters() const { return clusters_.size(); }
  /// Whether an all-reduce that is added up by devices alone has one hop more.
  [[nodiscard]] bool devices_beside_hosts() const { return hosts_ >= 0; }
  /// Whether those hosts read what devices sent where it arrived, in memory that both reach.
  [[nodiscard]] bool hosts_read_in_place() const { return hosts_read_in_place_; }
  [[nodiscard]] bool kernels_everywhere() const { return kernels_everywhere_; }

 private:
  struct Cluster {
    double ranks = 0;
    double bandwidth = 0;  ///< to all others together, each way
  };
  [[nodiscard]] bool in_one_hop(const plan::Spec& spec) const;
  /// Blocks that cluster `c` sends or receives, whichever is more.
  [[nodiscard]] double blocks_of(const plan::Spec& spec, size_t c) const;

  std::vector<Cluster> clusters_;
  double n_ranks_ = 0;
  LinkCost slowest_;
  double call_ = 0;  ///< seconds of a small call of one hop
  bool in_memory_ = false;
  uint64_t window_ = 0;
  bool on_streams_ = false;
  bool kernels_everywhere_ = true;
  int hosts_ = -1;  ///< the cluster of hosts, of two, whose sums devices can make
  bool hosts_read_in_place_ = false;
  std::vector<int> cluster_of_;  ///< by rank
};

}  // namespace hetccl::tune
