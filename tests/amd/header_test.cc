// The numbers that hip.cc relies on are those of AMD's header.
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>

#include <cstddef>

#include "device/gpu/hip.h"

namespace hetccl::device::gpu::hip {

static_assert(kInvalidValue == hipErrorInvalidValue);
static_assert(kInvalidDevice == hipErrorInvalidDevice);
static_assert(kNotSupported == hipErrorNotSupported);
static_assert(hipSuccess == 0);
static_assert(kStreamNonBlocking == hipStreamNonBlocking);
static_assert(kEventDisableTiming == hipEventDisableTiming);
static_assert(kHostPortable == hipHostMallocPortable);
static_assert(kHostMapped == hipHostMallocMapped);
static_assert(kHostCoherent == hipHostMallocCoherent);
static_assert(kRegisterPortable == hipHostRegisterPortable);
static_assert(kRegisterMapped == hipHostRegisterMapped);
static_assert(kMultiprocessors == hipDeviceAttributeMultiprocessorCount);
static_assert(kCopyDefault == hipMemcpyDefault);
static_assert(kDevice == hipMemoryTypeDevice);
static_assert(kManaged == hipMemoryTypeManaged);
static_assert(hipStreamCaptureModeRelaxed == 2);
static_assert(hipStreamCaptureStatusNone == 0);

static_assert(sizeof(PointerAttributes) == sizeof(hipPointerAttribute_t));
static_assert(offsetof(PointerAttributes, type) == offsetof(hipPointerAttribute_t, type));
static_assert(offsetof(PointerAttributes, device) == offsetof(hipPointerAttribute_t, device));
static_assert(offsetof(PointerAttributes, managed) == offsetof(hipPointerAttribute_t, isManaged));

static_assert(sizeof(hipDeviceProp_tR0600) <= kPropertiesRoom);
static_assert(kArchitectureOffset == offsetof(hipDeviceProp_tR0600, gcnArchName));
static_assert(kArchitectureBytes == sizeof(hipDeviceProp_tR0600::gcnArchName));

// The calls are found by name, and called as these types.
#define HETCCL_TAKES(call, ...) \
  static_assert(sizeof(static_cast<hipError_t (*)(__VA_ARGS__)>(&call)) == sizeof(void*))
HETCCL_TAKES(hipMalloc, void**, size_t);
HETCCL_TAKES(hipHostMalloc, void**, size_t, unsigned);
HETCCL_TAKES(hipHostRegister, void*, size_t, unsigned);
HETCCL_TAKES(hipHostGetDevicePointer, void**, void*, unsigned);
HETCCL_TAKES(hipPointerGetAttributes, hipPointerAttribute_t*, const void*);
HETCCL_TAKES(hipMemcpyAsync, void*, const void*, size_t, hipMemcpyKind, hipStream_t);
HETCCL_TAKES(hipStreamCreateWithFlags, hipStream_t*, unsigned);
HETCCL_TAKES(hipStreamIsCapturing, hipStream_t, hipStreamCaptureStatus*);
HETCCL_TAKES(hipStreamWaitEvent, hipStream_t, hipEvent_t, unsigned);
HETCCL_TAKES(hipEventCreateWithFlags, hipEvent_t*, unsigned);
HETCCL_TAKES(hipEventRecord, hipEvent_t, hipStream_t);
HETCCL_TAKES(hipLaunchHostFunc, hipStream_t, hipHostFn_t, void*);
HETCCL_TAKES(hipDeviceGetAttribute, int*, hipDeviceAttribute_t, int);
HETCCL_TAKES(hipDeviceGetPCIBusId, char*, int, int);
HETCCL_TAKES(hipThreadExchangeStreamCaptureMode, hipStreamCaptureMode*);
HETCCL_TAKES(hipModuleLoadData, hipModule_t*, const void*);
HETCCL_TAKES(hipModuleGetFunction, hipFunction_t*, hipModule_t, const char*);
HETCCL_TAKES(hipModuleLaunchKernel, hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned,
             unsigned, unsigned, hipStream_t, void**, void**);

}  // namespace hetccl::device::gpu::hip
