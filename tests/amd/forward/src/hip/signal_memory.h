// Memory that hipExtMallocWithFlags allocated with hipMallocSignalMemory.
#pragma once

#include "cuda/driver.h"
#include "hip/hip.h"

namespace forward {

/// Allocates one 8-byte signal in pinned host memory, which both the host and the device can
/// access, as AMD's signal memory. Returns hipErrorInvalidValue for any other size: AMD's runtime
/// (not its header) accepts 8 bytes only.
[[nodiscard]] hipError_t allocate_signal(const cuda::Driver& driver, void** pointer,
                                         std::size_t bytes);

/// Returns whether `pointer` lies in a signal. Thread-safe.
[[nodiscard]] bool is_signal(const void* pointer);

/// Frees the signal at `pointer` and sets `*error`; returns false if there is none.
[[nodiscard]] bool free_signal(const cuda::Driver& driver, void* pointer, hipError_t* error);

}  // namespace forward
