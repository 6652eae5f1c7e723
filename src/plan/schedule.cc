#include "plan/schedule.h"

#include <algorithm>

namespace hetccl::plan {

uint32_t lag(uint16_t stage, uint16_t stages, uint32_t depth) {
  return stages < 2 ? 0 : static_cast<uint32_t>(uint64_t{stage} * depth / (uint64_t{stages} - 1));
}

uint32_t slots(const RankPlan& plan, uint32_t depth, uint32_t n_slices) {
  const bool fixed = plan.slicing == Slicing::Fixed;
  const uint32_t in_flight =
      (fixed ? depth : lag(static_cast<uint16_t>(plan.stages - 1), plan.stages, depth)) + 1;
  return std::max(1U, std::min(in_flight, n_slices));
}

}  // namespace hetccl::plan
