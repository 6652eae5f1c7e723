// What the process itself does with GPUs, as the drivers tell that it has loaded. Nothing here
// loads a driver, initialises one or makes a context.
#pragma once

#include <functional>
#include <memory>

#include "device/gpu/hip.h"

namespace hetccl::device::gpu {

/// One vendor's driver. Thread-safe.
class InProcess {
 public:
  virtual ~InProcess() = default;
  /// Whether the process has loaded it.
  [[nodiscard]] virtual bool is_loaded() = 0;
  /// The calling thread's current device; -1: it has none.
  [[nodiscard]] virtual int current_device() = 0;
  /// The device whose memory an address is, where the host cannot reach it; -1: none.
  [[nodiscard]] virtual int owner_of(const void* address) = 0;
};

/// CUDA's: a thread has a current device once it has a context.
std::shared_ptr<InProcess> cuda_in_process();
/// HIP's: every thread has a current device, once the process has opened the kernel's driver, of
/// which `kfd` is the device file.
std::shared_ptr<InProcess> hip_in_process(const char* kfd = "/dev/kfd");

/// `Api::memory_owner`.
using MemoryOwner = std::function<int(const void* address, int* device, bool* managed)>;
/// By cuPointerGetAttributes.
MemoryOwner memory_owner_by(
    std::function<int(unsigned count, const int* attributes, void** data, uint64_t pointer)> call);
/// By hipPointerGetAttributes, with hipPeekAtLastError and hipGetLastError.
MemoryOwner memory_owner_by(std::function<int(hip::PointerAttributes*, const void*)> call,
                            std::function<int()> peek, std::function<int()> take);

}  // namespace hetccl::device::gpu
