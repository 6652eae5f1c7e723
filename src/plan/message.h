// A message from one rank to another, as a plan.
#pragma once

#include "plan/plan.h"
#include "topology/topology.h"

namespace hetccl::plan {

/// What `rank` does for a message of its input from `from` to the output of `to`: nothing where it
/// is neither, a copy where it is both, else one step that a channel carries.
[[nodiscard]] RankPlan plan_message(int rank, int from, int to, const topology::Topology& topology);

/// The same for two ranks of a cluster whose library carries the data, in a communicator of these
/// two (ccl::Library::init_pair) whose rank 0 is the lower of them. A channel carries its header
/// alone, so that what does not match is an error that names both ends.
[[nodiscard]] RankPlan plan_message_by_library(int rank, int from, int to);

}  // namespace hetccl::plan
