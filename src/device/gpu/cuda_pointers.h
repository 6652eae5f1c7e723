// Asks CUDA's driver about an address.
#pragma once

#include "device/gpu/api.h"
#include "device/gpu/in_process.h"

namespace hetccl::device::gpu {

/// cuPointerGetAttributes.
using CudaPointerAttributes = int (*)(unsigned count, const int* attributes, void** data,
                                      uint64_t pointer);

MemoryOwner memory_owner_by(CudaPointerAttributes call);
/// `Api::find_mapping`. What no card may reach, managed memory and that of most pools, is in none.
/// Drivers before CUDA 12 do not know mappings: nothing is in any.
int find_cuda_mapping(CudaPointerAttributes call, const void* address, Mapping* mapping);

}  // namespace hetccl::device::gpu
