#include "device/gpu/cuda_pointers.h"

#include <array>

namespace hetccl::device::gpu {
namespace {

// Constants of cuda.h.
constexpr int kMemoryType = 2, kBufferId = 7, kIsManaged = 8, kDeviceNumber = 9;
constexpr int kRangeBase = 11, kRangeBytes = 12, kRdmaCapable = 15;
constexpr int kMappingBytes = 18, kMappingBase = 19, kBlockId = 20;
constexpr unsigned kOfHost = 1, kOfDevice = 2;

}  // namespace

// For an address that it does not know, the driver returns zeros and no error.
MemoryOwner memory_owner_by(CudaPointerAttributes call) {
  return [call](const void* address, int* device, bool* managed) {
    constexpr std::array kAttributes = {kMemoryType, kIsManaged, kDeviceNumber};
    unsigned type = 0, is_managed = 0;
    int ordinal = -1;
    std::array<void*, 3> results = {&type, &is_managed, &ordinal};
    const int code = call(kAttributes.size(), kAttributes.data(), results.data(),
                          reinterpret_cast<uint64_t>(address));
    *managed = is_managed != 0;
    *device = type == kOfDevice || *managed ? ordinal : -1;
    return code;
  };
}

// Returns the mapping, not the allocation: allocations on a device share mappings, which NICs
// register. The driver's mapping of host memory may end after the program's own.
int find_cuda_mapping(CudaPointerAttributes call, const void* address, Mapping* mapping) {
  constexpr std::array kAttributes = {kMemoryType, kRdmaCapable, kMappingBytes, kMappingBase,
                                      kBlockId,    kRangeBytes,  kRangeBase,    kBufferId};
  unsigned type = 0, capable = 0;
  Mapping range;
  std::array<void*, 8> results = {&type,        &capable,     &mapping->bytes, &mapping->base,
                                  &mapping->id, &range.bytes, &range.base,     &range.id};
  const int code = call(kAttributes.size(), kAttributes.data(), results.data(),
                        reinterpret_cast<uint64_t>(address));
  if (type == kOfHost) *mapping = range;
  mapping->on_device = type == kOfDevice;
  if (code != 0 || type == 0 || (mapping->on_device && capable == 0)) mapping->bytes = 0;
  return code;
}

}  // namespace hetccl::device::gpu
