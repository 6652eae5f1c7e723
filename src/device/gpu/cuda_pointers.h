// Asks CUDA's driver about an address.
#pragma once

#include "device/gpu/api.h"
#include "device/gpu/in_process.h"

namespace hetccl::device::gpu {

/// The signature of cuPointerGetAttributes.
using CudaPointerAttributes = int (*)(unsigned count, const int* attributes, void** data,
                                      uint64_t pointer);

MemoryOwner memory_owner_by(CudaPointerAttributes call);
/// Implements `Api::find_mapping`. Finds no mapping for memory that NICs cannot reach: managed
/// memory and that of most pools. Drivers before CUDA 12 do not report mappings, so nothing is
/// found.
int find_cuda_mapping(CudaPointerAttributes call, const void* address, Mapping* mapping);

}  // namespace hetccl::device::gpu
