// The fake device's memory: one memfd mapped twice, and an allocator over it.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "device/device.h"

namespace hetccl::fake {

/// Thread-safe.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  Status open(size_t bytes);

  Result<void*> allocate(size_t bytes);
  /// Ends the process for an address that `allocate` did not return.
  void free(void* memory);
  /// The memfd that holds it.
  Result<device::DmaBuf> export_memory(const device::Allocation& allocation) const;
  /// An address at which `address` can be accessed; addresses outside (pinned memory) are returned
  /// unchanged.
  [[nodiscard]] std::byte* alias(const void* address) const;

 private:
  std::byte* device_ = nullptr;  // PROT_NONE: the addresses that users hold
  std::byte* alias_ = nullptr;   // the same pages, readable and writable
  size_t bytes_ = 0;
  std::mutex mutex_;
  Fd fd_;
  std::map<size_t, size_t> used_;  // offset -> bytes
};

}  // namespace hetccl::fake
