// Exports of libamdhip64.so.6 that AMD's library lacks: for librccl.so.1 here, and for tests.
#pragma once

#include "hip/hip.h"

#define FORWARD_EXPORT extern "C" [[gnu::visibility("default")]]

/// Returns the CUDA stream behind a HIP stream.
FORWARD_EXPORT void* forward_cuda_stream(hipStream_t stream);

/// Returns the address by which the GPU accesses the host's copy of non-coherent memory; `pointer`
/// itself for any other memory. NCCL's kernels are not between merges, so they use this copy.
FORWARD_EXPORT void* forward_host_copy(const void* pointer);

/// Makes the thread's device current and applies mode slow-enqueue. Returns a hipError_t.
FORWARD_EXPORT int forward_before_enqueue(const char* function);

/// Makes the thread's device current. Returns a hipError_t.
FORWARD_EXPORT int forward_make_current(const char* function);

/// Returns the number of values that libamdhip64.so.6 rejected.
FORWARD_EXPORT unsigned long forward_rejections();
