// Questions about pointers.
#include <cstdint>

#include "cuda/numbers.h"
#include "hip/call.h"
#include "hip/host_memory.h"
#include "hip/noncoherent.h"

namespace forward {
namespace {

static_assert(HIP_POINTER_ATTRIBUTE_CONTEXT == static_cast<int>(cuda::kPointerContext));
static_assert(HIP_POINTER_ATTRIBUTE_MEMORY_TYPE == static_cast<int>(cuda::kPointerMemoryType));
static_assert(HIP_POINTER_ATTRIBUTE_IS_MANAGED == static_cast<int>(cuda::kPointerIsManaged));
static_assert(HIP_POINTER_ATTRIBUTE_RANGE_SIZE == static_cast<int>(cuda::kPointerRangeSize));
static_assert(HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE ==
              static_cast<int>(cuda::kPointerMempoolHandle));
static_assert(hipMemoryTypeHost == 1 && hipMemoryTypeDevice == 2 && hipMemoryTypeManaged == 3);
static_assert(hipMemoryTypeArray == 10 && hipMemoryTypeUnified == 11);

// NVIDIA's 3 is an array; HIP's 3 is managed memory.
hipMemoryType memory_type(int cuda_type, bool managed) {
  if (managed) return hipMemoryTypeManaged;
  switch (cuda_type) {
    case cuda::kMemoryHost:
      return hipMemoryTypeHost;
    case cuda::kMemoryDevice:
      return hipMemoryTypeDevice;
    case cuda::kMemoryArray:
      return hipMemoryTypeArray;
    case cuda::kMemoryUnified:
      return hipMemoryTypeUnified;
    default:
      return hipMemoryTypeUnregistered;
  }
}

// The driver describes non-coherent memory by its alias; the answers are the program's addresses.
hipError_t describe(const cuda::Driver& driver, hipPointerAttribute_t* attributes,
                    const void* asked) {
  const cuda::Address distance = alias_distance(asked);
  const cuda::Address pointer = cuda::address(asked) + distance;
  unsigned type = 0;
  const int code = driver.pointer_get_attribute(&type, cuda::kPointerMemoryType, pointer);
  if (code != 0 || type == 0) return hipErrorInvalidValue;  // As AMD's header says.
  unsigned managed = 0;
  cuda::Address device = distance;
  cuda::Address host_address = distance;
  int ordinal = 0;
  (void)driver.pointer_get_attribute(&managed, cuda::kPointerIsManaged, pointer);
  (void)driver.pointer_get_attribute(&device, cuda::kPointerDevicePointer, pointer);
  (void)driver.pointer_get_attribute(&host_address, cuda::kPointerHostPointer, pointer);
  (void)driver.pointer_get_attribute(&ordinal, cuda::kPointerDeviceOrdinal, pointer);
  void* host = reinterpret_cast<void*>(host_address - distance);
  *attributes = {};
  attributes->type = memory_type(static_cast<int>(type), (managed & 0xff) != 0);
  attributes->device = ordinal;
  attributes->devicePointer = reinterpret_cast<void*>(device - distance);
  attributes->hostPointer = host;
  attributes->isManaged = (managed & 0xff) != 0 ? 1 : 0;
  (void)host_allocation_flags(host, &attributes->allocationFlags);
  return hipSuccess;
}

bool is_address(hipPointer_attribute attribute) {
  return attribute == HIP_POINTER_ATTRIBUTE_DEVICE_POINTER ||
         attribute == HIP_POINTER_ATTRIBUTE_HOST_POINTER ||
         attribute == HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR;
}

// The driver answers with its own memory type, so the answer needs the map as well.
hipError_t read_type(const cuda::Driver& driver, void* data, const void* pointer) {
  hipPointerAttribute_t attributes;
  const hipError_t error = describe(driver, &attributes, pointer);
  if (error == hipSuccess) *static_cast<std::uint32_t*>(data) = attributes.type;
  return error;
}

}  // namespace
}  // namespace forward

using namespace forward;

hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* ptr) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (attributes == nullptr || ptr == nullptr) return hipErrorInvalidValue;
    return describe(driver, attributes, ptr);
  });
}

hipError_t hipPointerGetAttribute(void* data, hipPointer_attribute attribute, hipDeviceptr_t ptr) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (attribute < HIP_POINTER_ATTRIBUTE_CONTEXT ||
        attribute > HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
      return reject("hipPointerGetAttribute", "attribute", attribute);
    }
    if (data == nullptr || ptr == nullptr) return hipErrorInvalidValue;
    if (attribute == HIP_POINTER_ATTRIBUTE_MEMORY_TYPE) {
      return read_type(driver, data, ptr);
    }
    const int code = driver.pointer_get_attribute(data, attribute, host_copy(ptr));
    if (code == 0 && is_address(attribute)) {
      *static_cast<cuda::Address*>(data) -= alias_distance(ptr);
    }
    return from_cuda(code);
  });
}
