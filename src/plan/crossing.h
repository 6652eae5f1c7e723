// What an algorithm moves between clusters and adds outside the vendors' libraries, counted from
// its plans in blocks: per byte of a block's slice, so for every count. `traffic` counts one call
// to the byte, but takes the plans of all ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "plan/algorithms.h"

namespace hetccl::plan {

/// The messages between clusters, of all ranks.
struct Crossing {
  struct Moved {
    double sent = 0, received = 0;  ///< blocks
  };
  /// What one rank handles of a slice.
  struct Handled {
    uint64_t sent = 0, received = 0;  ///< messages
    double passed = 0;  ///< blocks that it copies on their way between two other places
    [[nodiscard]] uint64_t messages() const { return std::max(sent, received); }
  };
  std::vector<Moved> clusters;
  /// Where ranks send alike, only one of them has all that it sends.
  std::vector<Handled> ranks;
  /// The stages in which messages cross: one for each hop, since a message that waits for another
  /// one has a later stage.
  std::set<uint16_t> stages{};
  Slicing slicing = Slicing::Agreed;  ///< of the plans
  int library_calls = 0;              ///< in the plan of a rank of the largest cluster

  explicit Crossing(const topology::Topology& of)
      : clusters(of.clusters().size()), ranks(static_cast<size_t>(of.n_ranks())), topology(of) {}
  [[nodiscard]] int hops() const { return static_cast<int>(stages.size()); }
  /// Counts a message of `blocks` from each of `n_alike` ranks, of which `from` is one, to `to`.
  /// Messages within a cluster do not count.
  void add(int from, int to, uint16_t stage, double blocks, size_t n_alike = 1);

  const topology::Topology& topology;
};

/// end - begin.
[[nodiscard]] double length_of(Fraction begin, Fraction end);

/// Makes one rank's plan, whose planner walks the messages of all ranks; where it does not, the
/// plans of one rank of each cluster and of the root. `row` applies, and the root is a rank.
[[nodiscard]] Crossing count_crossing(const Algorithm& row, const Spec& spec,
                                      const topology::Topology& topology);

/// The blocks that the cluster's ranks add to others by themselves, in sum. Makes the plans of all
/// of them.
[[nodiscard]] double count_added(const Algorithm& row, const Spec& spec,
                                 const topology::Topology& topology, int cluster);

}  // namespace hetccl::plan
