// What is worth measuring of a topology when a communicator is made.
#pragma once

#include <vector>

#include "topology/topology.h"

namespace hetccl::tune {

/// A link, and the ranks that measure it, which exchange messages in every collective.
struct LinkToMeasure {
  int a = 0, b = 0;              ///< clusters, a < b
  int rank_a = -1, rank_b = -1;  ///< `rank_a` is the first, who reports
};

/// All links, or of each kind and published bandwidth the first, which stands for the others; in an
/// order in which all ranks can measure theirs.
[[nodiscard]] std::vector<LinkToMeasure> links_to_measure(const topology::Topology& topology,
                                                          bool all);

}  // namespace hetccl::tune
