#include "exec/program.h"

#include <algorithm>

namespace hetccl::exec {

lower::RankTraits traits_of(const device::Device& device, int local_rank) {
  const uint32_t capabilities = device.capabilities();
  return {local_rank, (capabilities & device::kHostAccessible) != 0};
}

Program::Program(plan::RankPlan plan)
    : plan_(std::move(plan)),
      peers_(lower::peers_of(plan_)),
      one_library_call_(lower::is_one_library_call(plan_)) {}

void Program::bind(lower::Target target) {
  target_ = std::move(target);
  bound_ = true;
}

Result<Program::Lowered> Program::lower_for(const lower::CallShape& shape) {
  const bool even = !shape.is_uneven();
  const Kind kind{shape.type, shape.count, shape.choice, shape.by_host, shape.registered};
  for (const Recent& recent : recent_) {
    if (even && recent.kind == kind) return recent.lowered;
  }
  const lower::Geometry geometry = lower::geometry_of(plan_, target_, shape);
  auto known = std::find_if(kept_.begin(), kept_.end(),
                            [&](const auto& kept) { return kept->geometry.same_code(geometry); });
  if (known == kept_.end()) {
    HETCCL_ASSIGN(auto code, lower::lower(plan_, target_, geometry));
    kept_.push_back(std::make_unique<Kept>(Kept{geometry, std::move(code)}));
    known = kept_.end() - 1;
  }
  const Lowered lowered{geometry.slice_elements, geometry.n_slices, &(*known)->code};
  if (even && recent_.size() < kRecent) {
    recent_.push_back({kind, lowered});
  } else if (even) {
    recent_[next_recent_++ % kRecent] = {kind, lowered};
  }
  return lowered;
}

}  // namespace hetccl::exec
