// The numbers, structs and signatures of the table of runtimes are those of NVIDIA's header.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/numbers.h"

namespace hetccl::runtime {
namespace {

consteval int64_t number(std::span<const Number> rows, int neutral) {
  size_t at = 0;
  while (rows[at].neutral != neutral) ++at;
  return rows[at].cuda;
}

static_assert(number(kErrors, hetcclRuntimeSuccess) == cudaSuccess);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidValue) == cudaErrorInvalidValue);
static_assert(number(kErrors, hetcclRuntimeErrorMemoryAllocation) == cudaErrorMemoryAllocation);
static_assert(number(kErrors, hetcclRuntimeErrorInitialization) == cudaErrorInitializationError);
static_assert(number(kErrors, hetcclRuntimeErrorUnloading) == cudaErrorCudartUnloading);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidConfiguration) ==
              cudaErrorInvalidConfiguration);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidPitch) == cudaErrorInvalidPitchValue);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidSymbol) == cudaErrorInvalidSymbol);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidDevicePointer) ==
              cudaErrorInvalidDevicePointer);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidTexture) == cudaErrorInvalidTexture);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidChannelDescriptor) ==
              cudaErrorInvalidChannelDescriptor);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidMemcpyDirection) ==
              cudaErrorInvalidMemcpyDirection);
static_assert(number(kErrors, hetcclRuntimeErrorInsufficientDriver) == cudaErrorInsufficientDriver);
static_assert(number(kErrors, hetcclRuntimeErrorMissingConfiguration) ==
              cudaErrorMissingConfiguration);
static_assert(number(kErrors, hetcclRuntimeErrorPriorLaunchFailure) == cudaErrorPriorLaunchFailure);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidDeviceFunction) ==
              cudaErrorInvalidDeviceFunction);
static_assert(number(kErrors, hetcclRuntimeErrorNoDevice) == cudaErrorNoDevice);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidDevice) == cudaErrorInvalidDevice);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidImage) == cudaErrorInvalidKernelImage);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidContext) == cudaErrorDeviceUninitialized);
static_assert(number(kErrors, hetcclRuntimeErrorAlreadyMapped) == cudaErrorAlreadyMapped);
static_assert(number(kErrors, hetcclRuntimeErrorNoKernelImage) == cudaErrorNoKernelImageForDevice);
static_assert(number(kErrors, hetcclRuntimeErrorNotMapped) == cudaErrorNotMapped);
static_assert(number(kErrors, hetcclRuntimeErrorEccUncorrectable) == cudaErrorECCUncorrectable);
static_assert(number(kErrors, hetcclRuntimeErrorUnsupportedLimit) == cudaErrorUnsupportedLimit);
static_assert(number(kErrors, hetcclRuntimeErrorDeviceInUse) == cudaErrorDeviceAlreadyInUse);
static_assert(number(kErrors, hetcclRuntimeErrorPeerAccessUnsupported) ==
              cudaErrorPeerAccessUnsupported);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidKernel) == cudaErrorInvalidPtx);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidSource) == cudaErrorInvalidSource);
static_assert(number(kErrors, hetcclRuntimeErrorFileNotFound) == cudaErrorFileNotFound);
static_assert(number(kErrors, hetcclRuntimeErrorSharedObjectSymbolNotFound) ==
              cudaErrorSharedObjectSymbolNotFound);
static_assert(number(kErrors, hetcclRuntimeErrorSharedObjectInitFailed) ==
              cudaErrorSharedObjectInitFailed);
static_assert(number(kErrors, hetcclRuntimeErrorOperatingSystem) == cudaErrorOperatingSystem);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidHandle) == cudaErrorInvalidResourceHandle);
static_assert(number(kErrors, hetcclRuntimeErrorIllegalState) == cudaErrorIllegalState);
static_assert(number(kErrors, hetcclRuntimeErrorNotFound) == cudaErrorSymbolNotFound);
static_assert(number(kErrors, hetcclRuntimeErrorNotReady) == cudaErrorNotReady);
static_assert(number(kErrors, hetcclRuntimeErrorIllegalAddress) == cudaErrorIllegalAddress);
static_assert(number(kErrors, hetcclRuntimeErrorLaunchOutOfResources) ==
              cudaErrorLaunchOutOfResources);
static_assert(number(kErrors, hetcclRuntimeErrorLaunchTimeout) == cudaErrorLaunchTimeout);
static_assert(number(kErrors, hetcclRuntimeErrorPeerAccessAlreadyEnabled) ==
              cudaErrorPeerAccessAlreadyEnabled);
static_assert(number(kErrors, hetcclRuntimeErrorPeerAccessNotEnabled) ==
              cudaErrorPeerAccessNotEnabled);
static_assert(number(kErrors, hetcclRuntimeErrorSetOnActiveProcess) == cudaErrorSetOnActiveProcess);
static_assert(number(kErrors, hetcclRuntimeErrorContextIsDestroyed) == cudaErrorContextIsDestroyed);
static_assert(number(kErrors, hetcclRuntimeErrorAssert) == cudaErrorAssert);
static_assert(number(kErrors, hetcclRuntimeErrorHostMemoryAlreadyRegistered) ==
              cudaErrorHostMemoryAlreadyRegistered);
static_assert(number(kErrors, hetcclRuntimeErrorHostMemoryNotRegistered) ==
              cudaErrorHostMemoryNotRegistered);
static_assert(number(kErrors, hetcclRuntimeErrorLaunchFailure) == cudaErrorLaunchFailure);
static_assert(number(kErrors, hetcclRuntimeErrorCooperativeLaunchTooLarge) ==
              cudaErrorCooperativeLaunchTooLarge);
static_assert(number(kErrors, hetcclRuntimeErrorNotSupported) == cudaErrorNotSupported);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureUnsupported) ==
              cudaErrorStreamCaptureUnsupported);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureInvalidated) ==
              cudaErrorStreamCaptureInvalidated);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureMerge) == cudaErrorStreamCaptureMerge);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureUnmatched) ==
              cudaErrorStreamCaptureUnmatched);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureUnjoined) ==
              cudaErrorStreamCaptureUnjoined);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureIsolation) ==
              cudaErrorStreamCaptureIsolation);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureImplicit) ==
              cudaErrorStreamCaptureImplicit);
static_assert(number(kErrors, hetcclRuntimeErrorCapturedEvent) == cudaErrorCapturedEvent);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureWrongThread) ==
              cudaErrorStreamCaptureWrongThread);
static_assert(number(kErrors, hetcclRuntimeErrorGraphExecUpdateFailure) ==
              cudaErrorGraphExecUpdateFailure);
static_assert(number(kErrors, hetcclRuntimeErrorUnknown) == cudaErrorUnknown);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxThreadsPerBlock) ==
              cudaDevAttrMaxThreadsPerBlock);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxBlockDimX) == cudaDevAttrMaxBlockDimX);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxBlockDimY) == cudaDevAttrMaxBlockDimY);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxBlockDimZ) == cudaDevAttrMaxBlockDimZ);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxGridDimX) == cudaDevAttrMaxGridDimX);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxGridDimY) == cudaDevAttrMaxGridDimY);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxGridDimZ) == cudaDevAttrMaxGridDimZ);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxSharedMemoryPerBlock) ==
              cudaDevAttrMaxSharedMemoryPerBlock);
static_assert(number(kAttributes, hetcclRuntimeAttributeTotalConstantMemory) ==
              cudaDevAttrTotalConstantMemory);
static_assert(number(kAttributes, hetcclRuntimeAttributeWarpSize) == cudaDevAttrWarpSize);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxPitch) == cudaDevAttrMaxPitch);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxRegistersPerBlock) ==
              cudaDevAttrMaxRegistersPerBlock);
static_assert(number(kAttributes, hetcclRuntimeAttributeClockRate) == cudaDevAttrClockRate);
static_assert(number(kAttributes, hetcclRuntimeAttributeTextureAlignment) ==
              cudaDevAttrTextureAlignment);
static_assert(number(kAttributes, hetcclRuntimeAttributeMultiprocessorCount) ==
              cudaDevAttrMultiProcessorCount);
static_assert(number(kAttributes, hetcclRuntimeAttributeKernelTimeout) ==
              cudaDevAttrKernelExecTimeout);
static_assert(number(kAttributes, hetcclRuntimeAttributeIntegrated) == cudaDevAttrIntegrated);
static_assert(number(kAttributes, hetcclRuntimeAttributeCanMapHostMemory) ==
              cudaDevAttrCanMapHostMemory);
static_assert(number(kAttributes, hetcclRuntimeAttributeComputeMode) == cudaDevAttrComputeMode);
static_assert(number(kAttributes, hetcclRuntimeAttributeConcurrentKernels) ==
              cudaDevAttrConcurrentKernels);
static_assert(number(kAttributes, hetcclRuntimeAttributeEccEnabled) == cudaDevAttrEccEnabled);
static_assert(number(kAttributes, hetcclRuntimeAttributePciBusId) == cudaDevAttrPciBusId);
static_assert(number(kAttributes, hetcclRuntimeAttributePciDeviceId) == cudaDevAttrPciDeviceId);
static_assert(number(kAttributes, hetcclRuntimeAttributePciDomainId) == cudaDevAttrPciDomainId);
static_assert(number(kAttributes, hetcclRuntimeAttributeMemoryClockRate) ==
              cudaDevAttrMemoryClockRate);
static_assert(number(kAttributes, hetcclRuntimeAttributeMemoryBusWidth) ==
              cudaDevAttrGlobalMemoryBusWidth);
static_assert(number(kAttributes, hetcclRuntimeAttributeL2CacheSize) == cudaDevAttrL2CacheSize);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxThreadsPerMultiprocessor) ==
              cudaDevAttrMaxThreadsPerMultiProcessor);
static_assert(number(kAttributes, hetcclRuntimeAttributeAsyncEngineCount) ==
              cudaDevAttrAsyncEngineCount);
static_assert(number(kAttributes, hetcclRuntimeAttributeUnifiedAddressing) ==
              cudaDevAttrUnifiedAddressing);
static_assert(number(kAttributes, hetcclRuntimeAttributeComputeCapabilityMajor) ==
              cudaDevAttrComputeCapabilityMajor);
static_assert(number(kAttributes, hetcclRuntimeAttributeComputeCapabilityMinor) ==
              cudaDevAttrComputeCapabilityMinor);
static_assert(number(kAttributes, hetcclRuntimeAttributeStreamPriorities) ==
              cudaDevAttrStreamPrioritiesSupported);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxSharedMemoryPerMultiprocessor) ==
              cudaDevAttrMaxSharedMemoryPerMultiprocessor);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxRegistersPerMultiprocessor) ==
              cudaDevAttrMaxRegistersPerMultiprocessor);
static_assert(number(kAttributes, hetcclRuntimeAttributeManagedMemory) == cudaDevAttrManagedMemory);
static_assert(number(kAttributes, hetcclRuntimeAttributeIsMultiGpuBoard) ==
              cudaDevAttrIsMultiGpuBoard);
static_assert(number(kAttributes, hetcclRuntimeAttributeMultiGpuBoardGroup) ==
              cudaDevAttrMultiGpuBoardGroupID);
static_assert(number(kAttributes, hetcclRuntimeAttributeHostNativeAtomics) ==
              cudaDevAttrHostNativeAtomicSupported);
static_assert(number(kAttributes, hetcclRuntimeAttributePageableMemoryAccess) ==
              cudaDevAttrPageableMemoryAccess);
static_assert(number(kAttributes, hetcclRuntimeAttributeConcurrentManagedAccess) ==
              cudaDevAttrConcurrentManagedAccess);
static_assert(number(kAttributes, hetcclRuntimeAttributeComputePreemption) ==
              cudaDevAttrComputePreemptionSupported);
static_assert(number(kAttributes, hetcclRuntimeAttributeHostPointerForRegisteredMemory) ==
              cudaDevAttrCanUseHostPointerForRegisteredMem);
static_assert(number(kAttributes, hetcclRuntimeAttributeCooperativeLaunch) ==
              cudaDevAttrCooperativeLaunch);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxSharedMemoryPerBlockOptin) ==
              cudaDevAttrMaxSharedMemoryPerBlockOptin);
static_assert(number(kAttributes, hetcclRuntimeAttributeHostRegister) ==
              cudaDevAttrHostRegisterSupported);
static_assert(number(kAttributes, hetcclRuntimeAttributePageableMemoryUsesHostPageTables) ==
              cudaDevAttrPageableMemoryAccessUsesHostPageTables);
static_assert(number(kAttributes, hetcclRuntimeAttributeDirectManagedAccessFromHost) ==
              cudaDevAttrDirectManagedMemAccessFromHost);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxBlocksPerMultiprocessor) ==
              cudaDevAttrMaxBlocksPerMultiprocessor);
static_assert(number(kAttributes, hetcclRuntimeAttributeMemoryPools) ==
              cudaDevAttrMemoryPoolsSupported);
static_assert(number(kAttributes, hetcclRuntimeAttributeGpuDirectRdma) ==
              cudaDevAttrGPUDirectRDMASupported);

static_assert(number(kFuncAttributes, hetcclRuntimeFuncMaxDynamicSharedMemory) ==
              cudaFuncAttributeMaxDynamicSharedMemorySize);
static_assert(number(kFuncAttributes, hetcclRuntimeFuncSharedMemoryCarveout) ==
              cudaFuncAttributePreferredSharedMemoryCarveout);
static_assert(number(kHostFlags, hetcclRuntimeHostPortable) == cudaHostAllocPortable);
static_assert(number(kHostFlags, hetcclRuntimeHostMapped) == cudaHostAllocMapped);
static_assert(number(kHostFlags, hetcclRuntimeHostWriteCombined) == cudaHostAllocWriteCombined);
static_assert(number(kRegisterFlags, hetcclRuntimeRegisterPortable) == cudaHostRegisterPortable);
static_assert(number(kRegisterFlags, hetcclRuntimeRegisterMapped) == cudaHostRegisterMapped);
static_assert(number(kRegisterFlags, hetcclRuntimeRegisterIoMemory) == cudaHostRegisterIoMemory);
static_assert(number(kEventFlags, hetcclRuntimeEventBlockingSync) == cudaEventBlockingSync);
static_assert(number(kEventFlags, hetcclRuntimeEventDisableTiming) == cudaEventDisableTiming);
static_assert(number(kEventFlags, hetcclRuntimeEventInterprocess) == cudaEventInterprocess);
static_assert(number(kRegisterFlags, hetcclRuntimeRegisterReadOnly) == cudaHostRegisterReadOnly);

static_assert(int(hetcclRuntimeMemcpyHostToHost) == int(cudaMemcpyHostToHost));
static_assert(int(hetcclRuntimeMemcpyHostToDevice) == int(cudaMemcpyHostToDevice));
static_assert(int(hetcclRuntimeMemcpyDeviceToHost) == int(cudaMemcpyDeviceToHost));
static_assert(int(hetcclRuntimeMemcpyDeviceToDevice) == int(cudaMemcpyDeviceToDevice));
static_assert(int(hetcclRuntimeMemcpyDefault) == int(cudaMemcpyDefault));
static_assert(int(hetcclRuntimeAttachGlobal) == int(cudaMemAttachGlobal));
static_assert(int(hetcclRuntimeAttachHost) == int(cudaMemAttachHost));
static_assert(int(hetcclRuntimeStreamDefault) == int(cudaStreamDefault));
static_assert(int(hetcclRuntimeStreamNonBlocking) == int(cudaStreamNonBlocking));
static_assert(int(hetcclRuntimeEventWaitDefault) == int(cudaEventWaitDefault));
static_assert(int(hetcclRuntimeEventWaitExternal) == int(cudaEventWaitExternal));
static_assert(int(hetcclRuntimeIpcLazyEnablePeerAccess) == int(cudaIpcMemLazyEnablePeerAccess));
static_assert(int(hetcclRuntimeCaptureGlobal) == int(cudaStreamCaptureModeGlobal));
static_assert(int(hetcclRuntimeCaptureThreadLocal) == int(cudaStreamCaptureModeThreadLocal));
static_assert(int(hetcclRuntimeCaptureRelaxed) == int(cudaStreamCaptureModeRelaxed));
static_assert(int(hetcclRuntimeCaptureNone) == int(cudaStreamCaptureStatusNone));
static_assert(int(hetcclRuntimeCaptureActive) == int(cudaStreamCaptureStatusActive));
static_assert(int(hetcclRuntimeCaptureInvalidated) == int(cudaStreamCaptureStatusInvalidated));
static_assert(int(hetcclRuntimeGraphAutoFreeOnLaunch) ==
              int(cudaGraphInstantiateFlagAutoFreeOnLaunch));
#if CUDART_VERSION >= 12000
static_assert(int(hetcclRuntimeGraphUpload) == int(cudaGraphInstantiateFlagUpload));
static_assert(int(hetcclRuntimeGraphDeviceLaunch) == int(cudaGraphInstantiateFlagDeviceLaunch));
static_assert(int(hetcclRuntimeGraphUseNodePriority) ==
              int(cudaGraphInstantiateFlagUseNodePriority));
#endif
static_assert(int(hetcclRuntimeLimitStackSize) == int(cudaLimitStackSize));
static_assert(int(hetcclRuntimeLimitPrintfFifoSize) == int(cudaLimitPrintfFifoSize));
static_assert(int(hetcclRuntimeLimitMallocHeapSize) == int(cudaLimitMallocHeapSize));
static_assert(int(hetcclRuntimeMemoryUnregistered) == int(cudaMemoryTypeUnregistered));
static_assert(int(hetcclRuntimeMemoryHost) == int(cudaMemoryTypeHost));
static_assert(int(hetcclRuntimeMemoryDevice) == int(cudaMemoryTypeDevice));
static_assert(int(hetcclRuntimeMemoryManaged) == int(cudaMemoryTypeManaged));

static_assert(sizeof(cudaPointerAttributes) <= sizeof(PointerAttributes));
static_assert(offsetof(PointerAttributes, type) == offsetof(cudaPointerAttributes, type));
static_assert(offsetof(PointerAttributes, device) == offsetof(cudaPointerAttributes, device));
static_assert(offsetof(PointerAttributes, device_pointer) ==
              offsetof(cudaPointerAttributes, devicePointer));
static_assert(offsetof(PointerAttributes, host_pointer) ==
              offsetof(cudaPointerAttributes, hostPointer));
static_assert(sizeof(cudaFuncAttributes) <= sizeof(CudaFuncAttributes));
static_assert(offsetof(CudaFuncAttributes, shared) ==
              offsetof(cudaFuncAttributes, sharedSizeBytes));
static_assert(offsetof(CudaFuncAttributes, constant) ==
              offsetof(cudaFuncAttributes, constSizeBytes));
static_assert(offsetof(CudaFuncAttributes, local) == offsetof(cudaFuncAttributes, localSizeBytes));
static_assert(offsetof(CudaFuncAttributes, threads) ==
              offsetof(cudaFuncAttributes, maxThreadsPerBlock));
static_assert(offsetof(CudaFuncAttributes, registers) == offsetof(cudaFuncAttributes, numRegs));
static_assert(offsetof(CudaFuncAttributes, binary_version) ==
              offsetof(cudaFuncAttributes, binaryVersion));
static_assert(offsetof(CudaFuncAttributes, dynamic_shared) ==
              offsetof(cudaFuncAttributes, maxDynamicSharedSizeBytes));
static_assert(offsetof(CudaFuncAttributes, carveout) ==
              offsetof(cudaFuncAttributes, preferredShmemCarveout));
static_assert(sizeof(cudaDeviceProp) <= sizeof(DeviceProperties));
static_assert(offsetof(DeviceProperties, name) == offsetof(cudaDeviceProp, name));
static_assert(offsetof(DeviceProperties, total_memory) == offsetof(cudaDeviceProp, totalGlobalMem));

// The vendor's functions take what the entries give them: pointers, numbers and structs by value.
static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(hetcclRuntimeIpcMemHandle_t));
static_assert(sizeof(dim3) == sizeof(hetcclRuntimeDim3));
static_assert(sizeof(cudaHostNodeParams) == sizeof(hetcclRuntimeHostNode_t));
static_assert(offsetof(cudaHostNodeParams, userData) == offsetof(hetcclRuntimeHostNode_t, context));
static_assert(sizeof(cudaMemcpyKind) == sizeof(hetcclRuntimeMemcpyKind_t));
static_assert(sizeof(cudaStreamCaptureStatus) == sizeof(hetcclRuntimeCaptureStatus_t));
static_assert(sizeof(cudaStreamCaptureMode) == sizeof(hetcclRuntimeCaptureMode_t));

#define HETCCL_TAKES(call, ...) \
  static_assert(sizeof(static_cast<cudaError_t (*)(__VA_ARGS__)>(&call)) == sizeof(void*))
HETCCL_TAKES(cudaThreadExchangeStreamCaptureMode, cudaStreamCaptureMode*);
HETCCL_TAKES(cudaMalloc, void**, size_t);
HETCCL_TAKES(cudaMallocHost, void**, size_t);
HETCCL_TAKES(cudaMallocManaged, void**, size_t, unsigned);
HETCCL_TAKES(cudaHostAlloc, void**, size_t, unsigned);
HETCCL_TAKES(cudaGetDevice, int*);
HETCCL_TAKES(cudaSetDevice, int);
HETCCL_TAKES(cudaGetLastError);
HETCCL_TAKES(cudaDeviceCanAccessPeer, int*, int, int);
HETCCL_TAKES(cudaFreeHost, void*);
HETCCL_TAKES(cudaDeviceGetAttribute, int*, cudaDeviceAttr, int);
HETCCL_TAKES(cudaStreamCreateWithFlags, cudaStream_t*, unsigned);
HETCCL_TAKES(cudaMemcpy, void*, const void*, size_t, cudaMemcpyKind);
HETCCL_TAKES(cudaMemcpyAsync, void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
HETCCL_TAKES(cudaFree, void*);
HETCCL_TAKES(cudaMemset, void*, int, size_t);
HETCCL_TAKES(cudaMemsetAsync, void*, int, size_t, cudaStream_t);
HETCCL_TAKES(cudaStreamQuery, cudaStream_t);
HETCCL_TAKES(cudaStreamSynchronize, cudaStream_t);
HETCCL_TAKES(cudaStreamDestroy, cudaStream_t);
HETCCL_TAKES(cudaEventCreate, cudaEvent_t*);
HETCCL_TAKES(cudaEventCreateWithFlags, cudaEvent_t*, unsigned);
HETCCL_TAKES(cudaEventQuery, cudaEvent_t);
HETCCL_TAKES(cudaEventRecord, cudaEvent_t, cudaStream_t);
HETCCL_TAKES(cudaStreamWaitEvent, cudaStream_t, cudaEvent_t, unsigned);
HETCCL_TAKES(cudaEventDestroy, cudaEvent_t);
HETCCL_TAKES(cudaLaunchHostFunc, cudaStream_t, cudaHostFn_t, void*);
HETCCL_TAKES(cudaIpcOpenMemHandle, void**, cudaIpcMemHandle_t, unsigned);
HETCCL_TAKES(cudaIpcCloseMemHandle, void*);
HETCCL_TAKES(cudaIpcGetMemHandle, cudaIpcMemHandle_t*, void*);
HETCCL_TAKES(cudaHostRegister, void*, size_t, unsigned);
HETCCL_TAKES(cudaHostUnregister, void*);
HETCCL_TAKES(cudaHostGetDevicePointer, void**, void*, unsigned);
HETCCL_TAKES(cudaDeviceGetPCIBusId, char*, int, int);
HETCCL_TAKES(cudaDeviceGetByPCIBusId, int*, const char*);
HETCCL_TAKES(cudaDeviceEnablePeerAccess, int, unsigned);
HETCCL_TAKES(cudaGetDeviceCount, int*);
HETCCL_TAKES(cudaFuncSetAttribute, const void*, cudaFuncAttribute, int);
HETCCL_TAKES(cudaFuncGetAttributes, cudaFuncAttributes*, const void*);
HETCCL_TAKES(cudaLaunchKernel, const void*, dim3, dim3, void**, size_t, cudaStream_t);
HETCCL_TAKES(cudaDeviceSetLimit, cudaLimit, size_t);
HETCCL_TAKES(cudaGraphAddHostNode, cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, size_t,
             const cudaHostNodeParams*);
HETCCL_TAKES(cudaGraphInstantiateWithFlags, cudaGraphExec_t*, cudaGraph_t, unsigned long long);
HETCCL_TAKES(cudaGraphLaunch, cudaGraphExec_t, cudaStream_t);
HETCCL_TAKES(cudaGraphExecDestroy, cudaGraphExec_t);
HETCCL_TAKES(cudaGraphDestroy, cudaGraph_t);
HETCCL_TAKES(cudaDeviceSynchronize);
HETCCL_TAKES(cudaStreamBeginCapture, cudaStream_t, cudaStreamCaptureMode);
HETCCL_TAKES(cudaStreamEndCapture, cudaStream_t, cudaGraph_t*);
HETCCL_TAKES(cudaDeviceReset);
HETCCL_TAKES(cudaPointerGetAttributes, cudaPointerAttributes*, const void*);
HETCCL_TAKES(cudaStreamCreate, cudaStream_t*);
HETCCL_TAKES(cudaEventElapsedTime, float*, cudaEvent_t, cudaEvent_t);

}  // namespace
}  // namespace hetccl::runtime
