// Copies and fills. In mode non-coherent, they access the host's copy.
#include "cuda/numbers.h"
#include "hip/call.h"
#include "hip/noncoherent.h"

using namespace forward;

namespace {

static_assert(hipMemcpyHostToHost == 0 && hipMemcpyHostToDevice == 1);
static_assert(hipMemcpyDeviceToHost == 2 && hipMemcpyDeviceToDevice == 3);
static_assert(hipMemcpyDefault == 4 && hipMemcpyDeviceToDeviceNoCU == 1024);

// The driver finds the direction from the addresses, so the kind is checked and then dropped.
hipError_t check(const char* function, hipMemcpyKind kind) {
  switch (kind) {
    case hipMemcpyHostToHost:
    case hipMemcpyHostToDevice:
    case hipMemcpyDeviceToHost:
    case hipMemcpyDeviceToDevice:
    case hipMemcpyDefault:
    case hipMemcpyDeviceToDeviceNoCU:
      return hipSuccess;
  }
  (void)reject(function, "kind", kind);
  return hipErrorInvalidValue;
}

}  // namespace

hipError_t hipMemcpy(void* dst, const void* src, size_t sizeBytes, hipMemcpyKind kind) {
  return enqueue(__func__, nullptr, [&](const cuda::Driver& driver, cuda::Handle) {
    const hipError_t error = check("hipMemcpy", kind);
    if (error != hipSuccess || sizeBytes == 0) return error;
    return from_cuda(driver.memcpy(host_copy(dst), host_copy(src), sizeBytes));
  });
}

hipError_t hipMemcpyAsync(void* dst, const void* src, size_t sizeBytes, hipMemcpyKind kind,
                          hipStream_t stream) {
  return enqueue(__func__, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    const hipError_t error = check("hipMemcpyAsync", kind);
    if (error != hipSuccess || sizeBytes == 0) return error;
    return from_cuda(driver.memcpy_async(host_copy(dst), host_copy(src), sizeBytes, queue));
  });
}

hipError_t hipMemset(void* dst, int value, size_t sizeBytes) {
  return enqueue(__func__, nullptr, [&](const cuda::Driver& driver, cuda::Handle) {
    if (sizeBytes == 0) return hipSuccess;
    return from_cuda(
        driver.memset_d8(host_copy(dst), static_cast<unsigned char>(value), sizeBytes));
  });
}

hipError_t hipMemsetAsync(void* dst, int value, size_t sizeBytes, hipStream_t stream) {
  return enqueue(__func__, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    if (sizeBytes == 0) return hipSuccess;
    return from_cuda(driver.memset_d8_async(host_copy(dst), static_cast<unsigned char>(value),
                                            sizeBytes, queue));
  });
}
