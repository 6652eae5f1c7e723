// The planners of the collectives, one per file. Each adds its rank's steps and names the plan.
#pragma once

#include <vector>

#include "plan/builder.h"

namespace hetccl::plan {

/// One cluster: everything is the vendor's own call.
RankPlan plan_one_cluster(Builder builder);

/// Gather, scatter, all-to-all: every block straight from the rank that has it to the one that
/// wants it, within clusters too.
RankPlan plan_direct(Builder builder);

// Two clusters or more.
RankPlan plan_all_reduce_exchange(Builder builder);
/// `owners`: the clusters that add up a part each, ascending.
RankPlan plan_all_reduce_owner(Builder builder, std::vector<int> owners);
RankPlan plan_reduce_scatter_direct(Builder builder);
RankPlan plan_reduce_scatter_ring(Builder builder);
RankPlan plan_all_gather_direct(Builder builder);
RankPlan plan_all_gather_ring(Builder builder);
RankPlan plan_broadcast_star(Builder builder);
RankPlan plan_broadcast_chain(Builder builder);
RankPlan plan_reduce_chain(Builder builder);
RankPlan plan_reduce_star(Builder builder);
RankPlan plan_barrier(Builder builder);

}  // namespace hetccl::plan
