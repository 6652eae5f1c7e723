// The algorithms' planners. Each adds its rank's steps to the builder.
#pragma once

#include "plan/builder.h"

namespace hetccl::plan {

/// One cluster: one call of the vendor's library.
RankPlan plan_vendor(Builder builder);

/// Gather, scatter, all-to-all: every block goes straight from its sender to its receiver; within a
/// cluster by its library, if that exchanges messages.
RankPlan plan_pairwise(Builder builder);

/// One cluster, encoded.
RankPlan plan_all_reduce_inside(Builder builder);
RankPlan plan_reduce_scatter_inside(Builder builder);

// Two clusters or more; `plan_all_gather_direct` also for one cluster, encoded.
RankPlan plan_all_to_all_gathered(Builder builder);
RankPlan plan_all_reduce_owner(Builder builder);
RankPlan plan_all_reduce_exchange(Builder builder);
RankPlan plan_all_reduce_mirror(Builder builder);
RankPlan plan_reduce_scatter_ring(Builder builder);
RankPlan plan_reduce_scatter_direct(Builder builder);
RankPlan plan_reduce_scatter_mirror(Builder builder);
RankPlan plan_all_gather_ring(Builder builder);
RankPlan plan_all_gather_direct(Builder builder);
RankPlan plan_all_gather_mirror(Builder builder);
RankPlan plan_broadcast_chain(Builder builder);
RankPlan plan_broadcast_star(Builder builder);
RankPlan plan_reduce_chain(Builder builder);
RankPlan plan_reduce_star(Builder builder);
RankPlan plan_barrier(Builder builder);

}  // namespace hetccl::plan
