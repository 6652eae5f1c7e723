// Mode non-coherent: pinned memory whose host and device copies meet at kernel boundaries only.
//
// An allocation has one address X for the host and the device, and two memories. The CPU's page
// table maps X to a file in memory; the GPU's page table maps X to memory of the device. The file
// is also mapped at a second address, its alias, which the GPU reaches as pinned memory. Copies,
// fills and stream values use the alias, because AMD's copy engines access the host's memory.
#pragma once

#include "cuda/driver.h"
#include "hip/hip.h"
#include "hip/merge.h"

namespace forward {

/// Returns whether hipHostMalloc with `flags` allocates non-coherent memory: in the mode, all but
/// hipHostMallocCoherent does.
[[nodiscard]] bool is_noncoherent(unsigned flags);

/// Allocates `bytes` of non-coherent memory, zeroed. The current context must be that of this
/// thread's device. Thread-safe.
[[nodiscard]] hipError_t allocate_noncoherent(const cuda::Driver& driver, void** pointer,
                                              std::size_t bytes);

/// Waits for all devices, frees the non-coherent memory at `pointer` and sets `*error`; returns
/// false if there is none. If the wait fails, the memory is leaked on purpose, because the GPU may
/// still write to it.
[[nodiscard]] bool free_noncoherent(const cuda::Driver& driver, void* pointer, hipError_t* error);

/// Returns the distance from `pointer` to its alias, modulo 2^64; 0 for any other memory.
[[nodiscard]] cuda::Address alias_distance(const void* pointer);

/// Returns the address by which the GPU accesses the host's copy of `pointer`: the alias in
/// non-coherent memory, else `pointer` itself.
[[nodiscard]] inline cuda::Address host_copy(const void* pointer) {
  return cuda::address(pointer) + alias_distance(pointer);
}

/// Forgets all non-coherent memory after hipDeviceReset, without unmapping it.
void forget_noncoherent();

/// Runs `launch()`, which enqueues a kernel on `queue`, between the two merges.
template <typename Launch>
hipError_t between_merges(const cuda::Driver& driver, cuda::Handle queue, Launch&& launch) {
  hipError_t error = enqueue_merge(driver, queue, Merge::kHostToDevice);
  if (error == hipSuccess) error = launch();
  return error == hipSuccess ? enqueue_merge(driver, queue, Merge::kDeviceToHost) : error;
}

}  // namespace forward
