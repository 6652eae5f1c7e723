#include "transport/ncclnet/registry.h"

#include <algorithm>

#include "transport/ncclnet/core.h"

namespace hetccl::transport::ncclnet {

Registered::~Registered() {
  core_->forget(known_);
}

void Registry::add(const Known& known) {
  const std::lock_guard lock(mutex_);
  known_.push_back(&known);
}

void Registry::remove(const Known& known) {
  const std::lock_guard lock(mutex_);
  std::erase(known_, &known);
}

const Known* Registry::find(const void* data, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto* const at = static_cast<const std::byte*>(data);
  const auto found = std::find_if(known_.rbegin(), known_.rend(),
                                  [&](const Known* one) { return one->contains(at, bytes); });
  return found != known_.rend() ? *found : nullptr;
}

}  // namespace hetccl::transport::ncclnet
