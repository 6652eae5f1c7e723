// The process's own use of GPUs, as reported by the drivers that it has loaded. Nothing here loads
// or initialises a driver, or makes a context.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "device/gpu/hip.h"

namespace hetccl::device::gpu {

/// The owner of the memory at an address.
struct Owner {
  int device = -1;       ///< -1: the host
  bool managed = false;  ///< the host reaches it, too
};

/// One vendor's driver. Thread-safe.
class InProcess {
 public:
  virtual ~InProcess() = default;
  /// Returns whether this machine can have such GPUs. The answer never changes.
  [[nodiscard]] virtual bool is_possible() = 0;
  /// Returns whether the process has loaded it.
  [[nodiscard]] virtual bool is_loaded() = 0;
  /// Returns the calling thread's current device; -1: none.
  [[nodiscard]] virtual int current_device() = 0;
  [[nodiscard]] virtual Owner owner_of(const void* address) = 0;
};

/// Returns CUDA's, in which a thread has a current device once it has a context.
std::shared_ptr<InProcess> cuda_in_process();
/// Returns HIP's, in which every thread has a current device once the process has opened the kernel
/// driver's device file `kfd` ("": the runtime needs none). A "not open" answer is kept for a
/// millisecond, which is shorter than HIP's time from opening it to its first memory.
std::shared_ptr<InProcess> hip_in_process(std::string kfd, const Clock& clock = steady_clock());

/// The type of `Api::memory_owner`.
using MemoryOwner = std::function<int(const void* address, int* device, bool* managed)>;
/// Implements it by hipPointerGetAttributes, hipPeekAtLastError and hipGetLastError.
MemoryOwner memory_owner_by(int (*call)(hip::PointerAttributes*, const void*), int (*peek)(),
                            int (*take)());

}  // namespace hetccl::device::gpu
