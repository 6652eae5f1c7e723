// Counts the data that an algorithm moves between clusters, and adds outside the vendors'
// libraries, from its plans. Units are blocks, so the result holds for every count. (`traffic`
// counts the bytes of one call, but needs the plans of all ranks.)
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
  /// Load of one rank per slice.
  struct Handled {
    uint64_t sent = 0, received = 0;  ///< messages
    double passed = 0;                ///< blocks that it copies between two intermediate places
    [[nodiscard]] uint64_t messages() const { return std::max(sent, received); }
  };
  std::vector<Moved> clusters;
  /// If several ranks send alike, only one of them has its sends counted here.
  std::vector<Handled> ranks;
  /// The stages in which messages cross. There is one for each hop: a message that depends on
  /// another has a later stage.
  std::set<uint16_t> stages{};
  Slicing slicing = Slicing::Agreed;  ///< of the plans
  int library_calls = 0;              ///< in the plan of a rank of the largest cluster

  explicit Crossing(const topology::Topology& of)
      : clusters(of.clusters().size()), ranks(static_cast<size_t>(of.n_ranks())), topology(of) {}
  [[nodiscard]] int hops() const { return static_cast<int>(stages.size()); }
  /// Counts a message of `blocks` to `to` from each of `n_alike` ranks, one of which is `from`.
  /// Messages within a cluster do not count.
  void add(int from, int to, uint16_t stage, double blocks, size_t n_alike = 1);

  const topology::Topology& topology;
};

/// Returns end - begin.
[[nodiscard]] double length_of(Fraction begin, Fraction end);

/// Counts from one rank's plan if its planner walks the messages of all ranks; otherwise from the
/// plans of one rank of each cluster and of the root. `row` must apply, and the root must be a
/// rank.
[[nodiscard]] Crossing count_crossing(const Algorithm& row, const Spec& spec,
                                      const topology::Topology& topology);

/// Total blocks that the cluster's ranks add outside the library. Makes the plans of all of them.
[[nodiscard]] double count_added(const Algorithm& row, const Spec& spec,
                                 const topology::Topology& topology, int cluster);

}  // namespace hetccl::plan
