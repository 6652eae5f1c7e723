#pragma once

#include <cstddef>

#include "device/device.h"

namespace hetccl::exec {

/// Memory that is reused while it is large enough.
class Arena {
 public:
  enum class Kind { Device, Pinned };
  Arena(device::Device& device, Kind kind) : device_(device), kind_(kind) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Status reserve(size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  device::Device& device_;
  Kind kind_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace hetccl::exec
