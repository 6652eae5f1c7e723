// A message from one rank to another, as a plan of one step.
#pragma once

#include "plan/plan.h"
#include "topology/topology.h"

namespace hetccl::plan {

/// What `rank` does for a message of its input from `from` to the output of `to`: nothing where it
/// is neither, a copy where it is both.
[[nodiscard]] RankPlan plan_message(int rank, int from, int to, const topology::Topology& topology);

}  // namespace hetccl::plan
