// Keeps a device's allocations, for runtimes that cannot be asked about them.
#pragma once

#include <iterator>
#include <map>
#include <mutex>
#include <optional>

#include "device/device.h"

namespace hetccl::device {

/// Thread-safe.
class Allocations {
 public:
  void add(void* memory, size_t bytes, bool on_device = false) {
    const std::lock_guard lock(mutex_);
    auto* base = static_cast<std::byte*>(memory);
    known_[base] = {base, bytes, ++last_id_, on_device};
  }
  void remove(const void* memory) {
    const std::lock_guard lock(mutex_);
    known_.erase(static_cast<const std::byte*>(memory));
  }
  [[nodiscard]] std::optional<Allocation> find(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    const std::lock_guard lock(mutex_);
    const auto after = known_.upper_bound(at);
    if (after == known_.begin()) return {};
    const Allocation& before = std::prev(after)->second;
    return at < before.base + before.bytes ? std::optional(before) : std::nullopt;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, Allocation> known_;  // by start address
  uint64_t last_id_ = 0;
};

}  // namespace hetccl::device
