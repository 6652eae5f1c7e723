// Device and managed memory.
#include "cuda/numbers.h"
#include "hip/call.h"
#include "hip/noncoherent.h"
#include "hip/signal_memory.h"

using namespace forward;

namespace {

hipError_t allocate(const cuda::Driver& driver, void** ptr, size_t size) {
  if (ptr == nullptr) return hipErrorInvalidValue;
  *ptr = nullptr;
  if (size == 0) return hipSuccess;  // AMD's header: no memory is allocated.
  cuda::Address pointer = 0;
  const int code = driver.mem_alloc(&pointer, size);
  *ptr = reinterpret_cast<void*>(pointer);
  return from_cuda(code);
}

// AMD's four flags are enumerators, not bits: 3 (uncached) is not 1 (fine-grained) plus 2 (signal).
static_assert(hipDeviceMallocDefault == 0 && hipDeviceMallocFinegrained == 1);
static_assert(hipMallocSignalMemory == 2 && hipDeviceMallocUncached == 3);
static_assert(hipDeviceMallocContiguous == 4);
static_assert(hipMemAttachGlobal == cuda::kAttachGlobal && hipMemAttachHost == cuda::kAttachHost);

}  // namespace

hipError_t hipMalloc(void** ptr, size_t size) {
  return in_context(__func__,
                    [&](const cuda::Driver& driver) { return allocate(driver, ptr, size); });
}

hipError_t hipExtMallocWithFlags(void** ptr, size_t sizeBytes, unsigned int flags) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (flags > hipDeviceMallocContiguous) return reject("hipExtMallocWithFlags", "flags", flags);
    if (flags != hipMallocSignalMemory || sizeBytes == 0) return allocate(driver, ptr, sizeBytes);
    return ptr == nullptr ? hipErrorInvalidValue : allocate_signal(driver, ptr, sizeBytes);
  });
}

// hipMemAttachSingle exists for stream attachment; an allocation takes Global or Host.
hipError_t hipMallocManaged(void** dev_ptr, size_t size, unsigned int flags) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (flags != hipMemAttachGlobal && flags != hipMemAttachHost) {
      return reject("hipMallocManaged", "flags", flags);
    }
    if (dev_ptr == nullptr || size == 0) return hipErrorInvalidValue;
    cuda::Address pointer = 0;
    const int code = driver.mem_alloc_managed(&pointer, size, flags);
    *dev_ptr = reinterpret_cast<void*>(pointer);
    return from_cuda(code);
  });
}

hipError_t hipFree(void* ptr) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    hipError_t error = hipSuccess;
    if (ptr == nullptr || free_signal(driver, ptr, &error)) return error;
    return from_cuda(driver.mem_free(cuda::address(ptr)));
  });
}

hipError_t hipMemGetAddressRange(hipDeviceptr_t* pbase, size_t* psize, hipDeviceptr_t dptr) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    cuda::Address base = 0;
    size_t size = 0;
    const int code = driver.mem_get_address_range(&base, &size, host_copy(dptr));
    if (code != 0) return from_cuda(code);
    base -= alias_distance(dptr);
    if (pbase != nullptr) *pbase = reinterpret_cast<hipDeviceptr_t>(base);
    if (psize != nullptr) *psize = size;
    return hipSuccess;
  });
}
