// Memory registered with a transport's devices.
#pragma once

#include <memory>
#include <vector>

#include "transport/memory_map.h"
#include "transport/verbs/device.h"

namespace hetccl::transport::verbs {

/// One registered piece of memory. It stays registered while somebody holds it.
class Registered {
 public:
  Registered(const Memory& memory, std::vector<Region> regions)
      : memory_(memory), regions_(std::move(regions)) {}

  [[nodiscard]] bool on_device() const { return memory_.kind == MemoryKind::Device; }
  [[nodiscard]] bool needs_flush() const { return memory_.needs_flush; }
  [[nodiscard]] std::byte* begin() const { return memory_.data; }
  [[nodiscard]] std::byte* end() const { return memory_.data + memory_.bytes; }
  /// Returns the registration with that device (Registry::number_of).
  [[nodiscard]] const Region& region(size_t device) const { return regions_[device]; }

 private:
  const Memory memory_;
  const std::vector<Region> regions_;
};
using Piece = std::shared_ptr<const Registered>;

/// Thread-safe.
class Registry : public std::enable_shared_from_this<Registry> {
 public:
  explicit Registry(std::vector<std::shared_ptr<Device>> devices) : devices_(std::move(devices)) {}

  Result<std::unique_ptr<Registration>> add(const Memory& memory);
  /// Returns the newest registration that contains `at`; null: none.
  [[nodiscard]] Piece find(const std::byte* at) const { return map_.find(at); }
  [[nodiscard]] bool has_device_memory() const {
    return map_.has_any([](const Registered& one) { return one.on_device(); });
  }
  [[nodiscard]] size_t number_of(const Device& device) const;
  [[nodiscard]] const std::vector<std::shared_ptr<Device>>& devices() const { return devices_; }

 private:
  class Handle;

  const std::vector<std::shared_ptr<Device>> devices_;
  MemoryMap<Registered> map_;
};

}  // namespace hetccl::transport::verbs
