// From a topology to each rank's plan. Pure and deterministic: every rank computes any rank's plan
// and gets the same.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace hetccl::plan {

/// `rank`'s plan for `spec`. InvalidArgument when the root is no rank.
Result<RankPlan> plan(int rank, const Spec& spec, const topology::Topology& topology);

/// The ranks with which `rank` exchanges messages in the collectives that need few channels: not
/// where blocks go straight from rank to rank, nor from a root to all clusters in one hop. These
/// are connected at init. Ascending.
std::vector<int> peers(int rank, const topology::Topology& topology);

/// The least bytes that must cross between clusters, summed over all directions (architecture.md,
/// invariant 2), for one call with `count` elements of `type`.
uint64_t least_bytes(const Spec& spec, const topology::Topology& topology, uint64_t count,
                     DataType type);

}  // namespace hetccl::plan
