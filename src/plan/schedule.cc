#include "plan/schedule.h"

#include <algorithm>

namespace hetccl::plan {
namespace {

/// Calls `visit(region, is_write)` for the scratch regions that `step` touches on cluster rank
/// `local_rank`.
template <typename Visit>
void for_each_scratch(const Step& step, int local_rank, Visit&& visit) {
  const auto touch = [&](const Region& region, bool write) {
    if (region.buffer == Buffer::Scratch) visit(region, write);
  };
  for (const ShardRegion& shard : step.shards) {
    if (reads_send(step.kind, shard, local_rank)) touch(shard.send, false);
    if (writes_recv(step.kind, shard, local_rank)) touch(shard.recv, true);
  }
  for (const TransferRegion& transfer : step.transfers) touch(transfer.region, !transfer.send);
  for (const Region& src : step.srcs) touch(src, false);
  if (step.kind == StepKind::Recv || step.kind == StepKind::Reduce || step.kind == StepKind::Copy ||
      step.kind == StepKind::CclAllReduce) {
    touch(step.dst, true);
  }
}

struct ScratchUse {
  const Region* region;
  uint16_t step;
  bool write;
};

bool overlap(const Region& a, const Region& b) {
  return a.begin < b.end && b.begin < a.end;
}

}  // namespace

uint32_t lag(uint16_t stage, uint16_t stages, uint32_t depth) {
  return stages < 2 ? 0 : static_cast<uint32_t>(uint64_t{stage} * depth / (uint64_t{stages} - 1));
}

uint32_t slots(const RankPlan& plan, uint32_t depth, uint32_t n_slices) {
  const uint32_t in_flight = lag(static_cast<uint16_t>(plan.stages - 1), plan.stages, depth) + 1;
  return std::max(1U, std::min(in_flight, n_slices));
}

std::vector<std::vector<uint16_t>> scratch_waits(const RankPlan& plan, int local_rank) {
  std::vector<std::vector<ScratchUse>> uses(plan.scratch_blocks);
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    for_each_scratch(plan.steps[s], local_rank, [&](const Region& region, bool write) {
      uses[region.block].push_back({&region, static_cast<uint16_t>(s), write});
    });
  }
  std::vector<std::vector<uint16_t>> waits(plan.steps.size());
  for (const auto& block : uses) {
    for (const ScratchUse& writer : block) {
      for (const ScratchUse& user : block) {
        if (writer.write && overlap(*writer.region, *user.region)) {
          waits[writer.step].push_back(user.step);
        }
      }
    }
  }
  for (auto& users : waits) {
    std::sort(users.begin(), users.end());
    users.erase(std::unique(users.begin(), users.end()), users.end());
  }
  return waits;
}

}  // namespace hetccl::plan
