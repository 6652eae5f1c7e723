// Predicts the time of a collective from its plans: a constant per call, hops, messages, and the
// bytes through the narrowest cluster. The time of bytes inside clusters is left out, because all
// algorithms of a collective share it. Two differences are counted: sums that one algorithm makes
// on hosts and another on devices, and blocks that pass through ranks which are neither source nor
// destination.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/algorithms.h"
#include "topology/topology.h"

namespace hetccl::tune {

/// A link between clusters: seconds until a message's first byte has arrived, and bytes per second.
struct LinkCost {
  double latency = 0;
  double bandwidth = 0;
};

/// An algorithm's load on the links, per block of a slice.
struct Load {
  int hops = 0;
  double blocks = 0;            ///< in or out of the busiest cluster
  double seconds_per_byte = 0;  ///< of a block, in the slowest cluster
  uint64_t messages = 0;        ///< per slice, sent or received by the busiest rank
  /// For bytes of a block that the busiest rank forwards inside its cluster.
  double passing_per_byte = 0;
  /// Calls of the cluster's library beyond those of the default algorithm; negative: fewer. They
  /// run one after the other.
  int extra_calls = 0;
  bool adds = false;          ///< ranks add up received data
  bool encodes = false;       ///< in scratch memory, even with a single cluster
  bool fixed_slices = false;  ///< always: ranks may know no blocks but their own
};

/// The costs of one topology's links. Immutable.
class CostModel {
 public:
  /// If `measured` is empty, uses constants and the bandwidths that ranks published.
  /// `deterministic`: ignores windows, because communicators get different amounts.
  CostModel(const topology::Topology& topology, const std::vector<topology::Measurement>& measured,
            bool deterministic);

  /// Makes some of the row's plans, so callers should keep the result. `topology` must be the
  /// model's, `row` must apply, and the root must be a rank.
  [[nodiscard]] Load load(const plan::Algorithm& row, const plan::Spec& spec,
                          const topology::Topology& topology) const;
  /// Returns the seconds for blocks of `bytes` in `slices` pieces that are pipelined over the hops.
  [[nodiscard]] double seconds(const Load& load, uint64_t bytes, uint64_t slices) const;
  /// Returns the slowest link between two clusters. Bandwidth is 0 if there is one cluster.
  [[nodiscard]] const LinkCost& slowest() const { return slowest_; }
  /// Returns whether all clusters share one host's memory.
  [[nodiscard]] bool in_memory() const { return in_memory_; }
  /// Returns the least memory that two devices share; 0: none share memory.
  [[nodiscard]] uint64_t window() const { return window_; }
  /// Returns whether messages go through devices' streams, to and from memory that transports
  /// reach.
  [[nodiscard]] bool on_streams() const { return on_streams_; }
  [[nodiscard]] size_t n_clusters() const { return clusters_.size(); }
  /// Returns whether host ranks read data of device ranks where it arrived, in shared memory
  /// (in-place read).
  [[nodiscard]] bool hosts_read_in_place() const { return hosts_read_in_place_; }

 private:
  struct Cluster {
    double ranks = 0;
    double bandwidth = 0;  ///< to all other clusters together, each way
  };

  std::vector<Cluster> clusters_;
  LinkCost slowest_;
  double call_ = 0;          ///< seconds of a small call with one hop
  double library_call_ = 0;  ///< seconds of one of its two library calls
  bool in_memory_ = false;
  uint64_t window_ = 0;
  bool on_streams_ = false;
  int hosts_ = -1;  ///< the hosts' cluster, if the other can make its sums; -1: none
  bool hosts_read_in_place_ = false;
};

}  // namespace hetccl::tune
