// What an algorithm moves between clusters and adds outside the vendors' libraries, counted from
// its plans in blocks: per byte of a block's slice, so for every count. `traffic` counts one call
// to the byte, but takes the plans of all ranks.
#pragma once

#include <set>
#include <vector>

#include "plan/algorithms.h"

namespace hetccl::plan {

/// The messages between clusters, of all ranks.
struct Crossing {
  struct Moved {
    double sent = 0, received = 0;  ///< blocks
  };
  std::vector<Moved> clusters;
  /// The stages in which messages cross: one for each hop, since a message that waits for another
  /// one has a later stage.
  std::set<uint16_t> stages{};

  explicit Crossing(const topology::Topology& topology) : clusters(topology.clusters().size()) {}
  [[nodiscard]] int hops() const { return static_cast<int>(stages.size()); }
  /// Counts messages of `blocks` in sum. Messages within a cluster do not count.
  void add(int from_cluster, int to_cluster, uint16_t stage, double blocks);
};

/// end - begin.
[[nodiscard]] double length_of(Fraction begin, Fraction end);

/// Makes one rank's plan, whose planner walks the messages of all ranks; for a pairwise collective
/// the plans of one rank of each cluster and of the root. `row` applies, and the root is a rank.
[[nodiscard]] Crossing count_crossing(const Algorithm& row, const Spec& spec,
                                      const topology::Topology& topology);

/// The blocks that the cluster's ranks add to others by themselves, in sum. Makes the plans of all
/// of them.
[[nodiscard]] double count_added(const Algorithm& row, const Spec& spec,
                                 const topology::Topology& topology, int cluster);

}  // namespace hetccl::plan
