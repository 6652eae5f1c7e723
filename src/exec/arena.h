#pragma once

#include <cstddef>

#include "device/device.h"

namespace hetccl::exec {

/// A block of memory that is allocated anew only when a larger one is needed.
class Arena {
 public:
  enum class Kind { Device, Pinned };
  Arena(device::Device& device, Kind kind) : device_(device), kind_(kind) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Status reserve(size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  device::Device& device_;
  Kind kind_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// The memory that an operation works in.
struct Buffers {
  explicit Buffers(device::Device& device)
      : scratch(device, Arena::Kind::Device), staging(device, Arena::Kind::Pinned) {}
  Status reserve(size_t scratch_bytes, size_t staging_bytes) {
    HETCCL_TRY(scratch.reserve(scratch_bytes));
    return staging.reserve(staging_bytes);
  }
  Arena scratch, staging;
};

}  // namespace hetccl::exec
