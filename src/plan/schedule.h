// The static order in which all ranks start the steps of all slices: what exec enqueues and the
// verifier checks.
//
// Step s of slice k starts at time k + lag(s.stage), where lag grows from 0 at the first stage to
// `depth` at the last; within one time, by stage, then by position in the plan. So the start of
// slice k + depth comes before the end of slice k, and every rank issues its calls on the cluster's
// communicator, and its messages on each channel, in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace hetccl::plan {

struct Issue {
  uint32_t slice = 0;
  uint16_t step = 0;
};

/// floor(stage * depth / (stages - 1)); 0 for a single stage.
[[nodiscard]] uint32_t lag(uint16_t stage, uint16_t stages, uint32_t depth);

/// Slots that scratch needs: slices that can be in flight at once.
[[nodiscard]] uint32_t slots(const RankPlan& plan, uint32_t depth, uint32_t n_slices);

/// Per step, the steps that must be complete in slice k - slots before it starts in slice k: those
/// that use the scratch which it overwrites. `local_rank` is the plan's rank within its cluster.
[[nodiscard]] std::vector<std::vector<uint16_t>> scratch_waits(const RankPlan& plan,
                                                               int local_rank);

/// Calls `visit(Issue)` for every step of every slice in the static order. Allocates nothing.
template <typename Visit>
void for_each_issue(const RankPlan& plan, uint32_t depth, uint32_t n_slices, Visit&& visit) {
  const uint32_t end = n_slices + lag(static_cast<uint16_t>(plan.stages - 1), plan.stages, depth);
  for (uint32_t time = 0; time < end; ++time) {
    for (uint16_t stage = 0; stage < plan.stages; ++stage) {
      const uint32_t start = lag(stage, plan.stages, depth);
      if (time < start || time - start >= n_slices) continue;
      for (size_t s = 0; s < plan.steps.size(); ++s) {
        if (plan.steps[s].stage == stage) visit(Issue{time - start, static_cast<uint16_t>(s)});
      }
    }
  }
}

}  // namespace hetccl::plan
