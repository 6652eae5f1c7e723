#include "comm/window_budget.h"

namespace hetccl::comm {
namespace {

constexpr size_t kBudget = size_t{96} << 20U;  // of a device
constexpr size_t kPart = 3;                    // of what is left is a communicator's
constexpr size_t kLeast = size_t{1} << 20U;    // less is of no use

}  // namespace

WindowBudget::Share WindowBudget::take(const device::Device& device) {
  Share share;
  std::lock_guard lock(mutex_);
  size_t& taken = taken_[&device];
  const size_t part = (kBudget - taken) / kPart;
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
