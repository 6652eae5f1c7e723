// Chooses the links to measure when a communicator is made.
#pragma once

#include <vector>

#include "topology/topology.h"

namespace hetccl::tune {

/// A link, and the ranks that measure it. These ranks exchange messages in every collective.
struct LinkToMeasure {
  int a = 0, b = 0;              ///< clusters, a < b
  int rank_a = -1, rank_b = -1;  ///< `rank_a` is the first, which reports
};

/// Returns all links, or the first of each kind and published bandwidth, which stands for the
/// others. The order lets all ranks measure theirs without a deadlock.
[[nodiscard]] std::vector<LinkToMeasure> links_to_measure(const topology::Topology& topology,
                                                          bool all);

}  // namespace hetccl::tune
