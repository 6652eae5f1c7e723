// The static order of all slices; `lower::for_each_issue` walks it.
//
// Step s of slice k starts at time k + lag(s.stage), where lag grows from 0 at the first stage to
// `depth` at the last. Within one time, steps are ordered by stage, then by position in the plan.
// So the start of slice k + depth comes before the end of slice k, and every rank issues its calls
// on the cluster's communicator, and its messages on each channel, in the same order.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace hetccl::plan {

/// floor(stage * depth / (stages - 1)); 0 for a single stage.
[[nodiscard]] uint32_t lag(uint16_t stage, uint16_t stages, uint32_t depth);

/// Number of scratch slots: the most slices that are in flight at a time.
[[nodiscard]] uint32_t slots(const RankPlan& plan, uint32_t depth, uint32_t n_slices);

}  // namespace hetccl::plan
