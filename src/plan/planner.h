// Plans a call for each rank of a topology. Pure and deterministic: every rank can compute any
// rank's plan and gets the same one.
#pragma once

#include <vector>

#include "plan/algorithms.h"

namespace hetccl::plan {

/// Plans `spec` for `rank`. InvalidArgument if the root is no rank, or the algorithm does not
/// apply.
Result<RankPlan> plan(int rank, const Spec& spec, const topology::Topology& topology,
                      Algorithms table = algorithms());

/// The ranks to which init makes channels of `rank`, ascending: its peers in the algorithms that
/// connect at init, and all ranks with which it shares a window. Windows are made only at init.
std::vector<int> peers(int rank, const topology::Topology& topology);

/// The fewest bytes that must cross between clusters, summed over all directions (architecture.md,
/// invariant 2), for one call with `count` elements of `type`.
uint64_t least_bytes(const Spec& spec, const topology::Topology& topology, uint64_t count,
                     DataType type);

}  // namespace hetccl::plan
