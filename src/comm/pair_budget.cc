#include "comm/pair_budget.h"

#include <algorithm>

namespace hetccl::comm {
namespace {

// The blocks of one direction of one pair. Over NVLink, 16 are as fast as NCCL without a limit.
constexpr int kLeastBlocks = 4, kMostBlocks = 16;
// The blocks of all pairs together: seven eighths of the multiprocessors. The other eighth stays
// free for kernels that do not fit beside a block that waits. Small devices get `kLeastOfAll`.
constexpr int kLeastOfAll = 64, kMostOfAll = 128;

}  // namespace

PairBudget::Share PairBudget::take(int multiprocessors) {
  Share share;
  const std::lock_guard lock(mutex_);
  if (pairs_ == kMostPairs) return share;
  const int for_others = kLeastBlocks * (kMostPairs - pairs_ - 1);
  const int all = std::clamp(multiprocessors - multiprocessors / 8, kLeastOfAll, kMostOfAll);
  const int free = all / 2 - blocks_ - for_others;
  share.budget_ = this;
  share.blocks_ = std::clamp(free, kLeastBlocks, kMostBlocks);
  ++pairs_;
  blocks_ += share.blocks_;
  return share;
}

void PairBudget::give_back(int pairs, int blocks) {
  const std::lock_guard lock(mutex_);
  pairs_ -= pairs;
  blocks_ -= blocks;
}

PairBudget::Share& PairBudget::Share::operator=(Share&& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(blocks_, other.blocks_);
  return *this;
}

PairBudget::Share::~Share() {
  if (budget_ != nullptr) budget_->give_back(1, blocks_);
}

void PairBudget::Share::keep(int blocks) {
  if (budget_ == nullptr || blocks >= blocks_) return;
  budget_->give_back(0, blocks_ - blocks);
  blocks_ = blocks;
}

}  // namespace hetccl::comm
