// What is worth measuring of a topology when a communicator is made.
#pragma once

#include <vector>

#include "topology/topology.h"

namespace hetccl::tune {

/// A link that stands for all of its kind and published bandwidth, and the ranks that measure it,
/// which exchange messages in every collective.
struct LinkToMeasure {
  int a = 0, b = 0;              ///< clusters, a < b
  int rank_a = -1, rank_b = -1;  ///< `rank_a` is the first, who reports
};

/// One of each class, in an order in which all ranks can measure theirs.
[[nodiscard]] std::vector<LinkToMeasure> links_to_measure(const topology::Topology& topology);

}  // namespace hetccl::tune
