// What a collective will cost: what every call costs, hops, messages, and the bytes through the
// narrowest cluster, as counted from its plans. How long bytes take inside clusters is left out,
// since all algorithms of one collective share it, but for sums that hosts make in one and devices
// in another, and for blocks that one passes through ranks which are neither their source nor their
// destination.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/algorithms.h"
#include "topology/topology.h"

namespace hetccl::tune {

/// One way between clusters: seconds until a message's first byte has arrived, and bytes a second.
struct LinkCost {
  double latency = 0;
  double bandwidth = 0;
};

/// What an algorithm asks of the links, per block of a slice.
struct Load {
  int hops = 0;
  double blocks = 0;            ///< in or out of the cluster that has most to move
  double seconds_per_byte = 0;  ///< of a block: of the cluster that takes longest
  uint64_t messages = 0;        ///< of a slice that the busiest rank sends, or receives
  /// Of a block: for what the busiest rank passes on inside clusters.
  double passing_per_byte = 0;
  /// Calls of the cluster's library beyond those of the default algorithm, negative where there are
  /// fewer: they follow each other.
  int extra_calls = 0;
  bool adds = false;          ///< ranks add up what they have received
  bool encodes = false;       ///< in scratch memory, also in one cluster
  bool fixed_slices = false;  ///< whatever the call: ranks may know no other block than their own
};

/// What is known of one topology's links. Immutable.
class CostModel {
 public:
  /// `measured` may be empty: then constants, and the bandwidths that ranks have published.
  /// `deterministic`: windows do not count, of which one communicator has more than the next.
  CostModel(const topology::Topology& topology, const std::vector<topology::Measurement>& measured,
            bool deterministic);

  /// Makes some of the row's plans, so callers keep the result. `topology` is the model's, `row`
  /// applies, and the root is a rank.
  [[nodiscard]] Load load(const plan::Algorithm& row, const plan::Spec& spec,
                          const topology::Topology& topology) const;
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
  /// Whether hosts beside devices read what those sent where it arrived, in memory that both reach.
  [[nodiscard]] bool hosts_read_in_place() const { return hosts_read_in_place_; }

 private:
  struct Cluster {
    double ranks = 0;
    double bandwidth = 0;  ///< to all others together, each way
  };

  std::vector<Cluster> clusters_;
  LinkCost slowest_;
  double call_ = 0;          ///< seconds of a small call of one hop
  double library_call_ = 0;  ///< of one of the two calls of a library in it
  bool in_memory_ = false;
  uint64_t window_ = 0;
  bool on_streams_ = false;
  int hosts_ = -1;  ///< the cluster of hosts, of two, whose sums devices can make
  bool hosts_read_in_place_ = false;
};

}  // namespace hetccl::tune
