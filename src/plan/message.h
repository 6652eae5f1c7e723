// Plans of a message from one rank to another.
#pragma once

#include "plan/plan.h"
#include "topology/topology.h"

namespace hetccl::plan {

/// The plan of `rank` for a message from the input of `from` to the output of `to`: one step on a
/// channel, a copy if the rank is both ends, nothing if it is neither.
[[nodiscard]] RankPlan plan_message(int rank, int from, int to, const topology::Topology& topology);

/// The same for two ranks of a cluster whose library carries the data, in a communicator of these
/// two (ccl::Library::init_pair) whose rank 0 is the lower one. The channel carries only the
/// header, so that a mismatch is an error that names both ends.
[[nodiscard]] RankPlan plan_message_by_library(int rank, int from, int to);

}  // namespace hetccl::plan
