// Maps HIP streams to CUDA streams.
#pragma once

#include "cuda/driver.h"
#include "hip/hip.h"

namespace forward {

/// Returns the CUDA stream behind `stream`. Both vendors number the null, the legacy and the
/// per-thread stream 0, 1 and 2. In mode one-queue, every stream of a device is one CUDA stream.
[[nodiscard]] cuda::Handle queue_of(hipStream_t stream);

/// Creates a stream. In mode one-queue, the result is a new name for the device's one queue.
[[nodiscard]] hipError_t create_queue(const cuda::Driver& driver, hipStream_t* stream,
                                      unsigned cuda_flags, int priority);

/// Destroys a stream. In mode one-queue, it waits for the queue and forgets the name.
[[nodiscard]] hipError_t destroy_queue(const cuda::Driver& driver, hipStream_t stream);

}  // namespace forward
