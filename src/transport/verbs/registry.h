// Memory that was registered with a transport's devices, by where it lies.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/verbs/device.h"

namespace hetccl::transport::verbs {

class Registry;

/// One piece of it.
class Registered final : public Registration {
 public:
  Registered(std::shared_ptr<Registry> registry, const Memory& memory, std::vector<Region> regions);
  ~Registered() override;
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  [[nodiscard]] bool on_device() const { return memory_.kind == MemoryKind::Device; }
  [[nodiscard]] bool needs_flush() const { return memory_.needs_flush; }
  [[nodiscard]] std::byte* begin() const { return memory_.data; }
  [[nodiscard]] std::byte* end() const { return memory_.data + memory_.bytes; }
  /// By the number of the device.
  [[nodiscard]] const Region& region(size_t device) const { return regions_[device]; }

 private:
  const std::shared_ptr<Registry> registry_;
  const Memory memory_;
  const std::vector<Region> regions_;
};

/// Thread-safe.
class Registry : public std::enable_shared_from_this<Registry> {
 public:
  explicit Registry(std::vector<std::shared_ptr<Device>> devices) : devices_(std::move(devices)) {}

  Result<std::unique_ptr<Registration>> add(const Memory& memory);
  /// What was registered last of what holds `at`; null where nothing does.
  [[nodiscard]] const Registered* find(const std::byte* at) const;
  [[nodiscard]] size_t number_of(const Device& device) const;
  [[nodiscard]] const std::vector<std::shared_ptr<Device>>& devices() const { return devices_; }

 private:
  friend class Registered;
  void remove(const Registered& registered);

  const std::vector<std::shared_ptr<Device>> devices_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, const Registered*> known_;  // no two overlap
};

}  // namespace hetccl::transport::verbs
