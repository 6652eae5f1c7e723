#include "comm/window_budget.h"

#include <algorithm>

namespace hetccl::comm {
namespace {

// Each device gets one part in `kPartsOfMemory` of the process's memory, and at least
// `kLeastOfDevice`. Eight devices take a thirty-second, because each window counts at both ends.
constexpr size_t kPartsOfMemory = 128;
constexpr size_t kLeastOfDevice = size_t{96} << 20U;
constexpr size_t kMost = size_t{64} << 20U;  // more does not make one communicator faster
constexpr size_t kParts = 3;                 // a communicator takes at most 1/kParts of what is
                                             // left
constexpr size_t kLeast = size_t{1} << 20U;  // a smaller share is useless

}  // namespace

WindowBudget::WindowBudget(size_t memory)
    : all_(std::max(memory / kPartsOfMemory, kLeastOfDevice)) {}

WindowBudget::Share WindowBudget::take(const device::Device& device) {
  Share share;
  std::lock_guard lock(mutex_);
  size_t& taken = taken_[&device];
  const size_t part = std::min((all_ - taken) / kParts, kMost);
  if (part < kLeast) return share;
  taken += part;
  share.budget_ = this;
  share.device_ = &device;
  share.bytes_ = part;
  return share;
}

WindowBudget::Share& WindowBudget::Share::operator=(Share&& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void WindowBudget::Share::keep(size_t bytes) {
  if (budget_ == nullptr || bytes >= bytes_) return;
  std::lock_guard lock(budget_->mutex_);
  budget_->taken_[device_] -= bytes_ - bytes;
  bytes_ = bytes;
}

}  // namespace hetccl::comm
