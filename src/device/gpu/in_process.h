// What the process itself does with GPUs, as the drivers tell that it has loaded. Nothing here
// loads a driver, initialises one or makes a context.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "device/gpu/hip.h"

namespace hetccl::device::gpu {

/// The owner of the memory at an address.
struct Owner {
  int device = -1;       ///< none: the host does
  bool managed = false;  ///< the host reaches it, too
};

/// One vendor's driver. Thread-safe.
class InProcess {
 public:
  virtual ~InProcess() = default;
  /// Whether this machine can have such GPUs: the answer stays the same.
  [[nodiscard]] virtual bool is_possible() = 0;
  /// Whether the process has loaded it.
  [[nodiscard]] virtual bool is_loaded() = 0;
  /// The calling thread's current device; -1: it has none.
  [[nodiscard]] virtual int current_device() = 0;
  [[nodiscard]] virtual Owner owner_of(const void* address) = 0;
};

/// CUDA's: a thread has a current device once it has a context.
std::shared_ptr<InProcess> cuda_in_process();
/// HIP's: every thread has a current device, once the process has opened the kernel's driver, of
/// which `kfd` is the device file; "": the runtime needs none. An answer that the file is not open
/// is kept for a millisecond: from opening it to its first memory HIP takes longer.
std::shared_ptr<InProcess> hip_in_process(std::string kfd, const Clock& clock = steady_clock());

/// `Api::memory_owner`.
using MemoryOwner = std::function<int(const void* address, int* device, bool* managed)>;
/// By hipPointerGetAttributes, with hipPeekAtLastError and hipGetLastError.
MemoryOwner memory_owner_by(int (*call)(hip::PointerAttributes*, const void*), int (*peek)(),
                            int (*take)());

}  // namespace hetccl::device::gpu
