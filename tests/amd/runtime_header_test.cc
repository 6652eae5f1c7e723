// The numbers, structs and signatures of the table of runtimes are those of AMD's header.
#define __HIP_PLATFORM_AMD__
#include <hip/hip_ext.h>
#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/numbers.h"

namespace hetccl::runtime {
namespace {

consteval int64_t number(std::span<const Number> rows, int neutral) {
  size_t at = 0;
  while (rows[at].neutral != neutral) ++at;
  return rows[at].hip;
}

static_assert(number(kErrors, hetcclRuntimeSuccess) == hipSuccess);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidValue) == hipErrorInvalidValue);
static_assert(number(kErrors, hetcclRuntimeErrorMemoryAllocation) == hipErrorOutOfMemory);
static_assert(number(kErrors, hetcclRuntimeErrorInitialization) == hipErrorNotInitialized);
static_assert(number(kErrors, hetcclRuntimeErrorUnloading) == hipErrorDeinitialized);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidConfiguration) ==
              hipErrorInvalidConfiguration);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidPitch) == hipErrorInvalidPitchValue);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidSymbol) == hipErrorInvalidSymbol);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidDevicePointer) ==
              hipErrorInvalidDevicePointer);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidTexture) == hipErrorInvalidTexture);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidChannelDescriptor) ==
              hipErrorInvalidChannelDescriptor);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidMemcpyDirection) ==
              hipErrorInvalidMemcpyDirection);
static_assert(number(kErrors, hetcclRuntimeErrorInsufficientDriver) == hipErrorInsufficientDriver);
static_assert(number(kErrors, hetcclRuntimeErrorMissingConfiguration) ==
              hipErrorMissingConfiguration);
static_assert(number(kErrors, hetcclRuntimeErrorPriorLaunchFailure) == hipErrorPriorLaunchFailure);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidDeviceFunction) ==
              hipErrorInvalidDeviceFunction);
static_assert(number(kErrors, hetcclRuntimeErrorNoDevice) == hipErrorNoDevice);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidDevice) == hipErrorInvalidDevice);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidImage) == hipErrorInvalidImage);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidContext) == hipErrorInvalidContext);
static_assert(number(kErrors, hetcclRuntimeErrorAlreadyMapped) == hipErrorAlreadyMapped);
static_assert(number(kErrors, hetcclRuntimeErrorNoKernelImage) == hipErrorNoBinaryForGpu);
static_assert(number(kErrors, hetcclRuntimeErrorNotMapped) == hipErrorNotMapped);
static_assert(number(kErrors, hetcclRuntimeErrorEccUncorrectable) == hipErrorECCNotCorrectable);
static_assert(number(kErrors, hetcclRuntimeErrorUnsupportedLimit) == hipErrorUnsupportedLimit);
static_assert(number(kErrors, hetcclRuntimeErrorDeviceInUse) == hipErrorContextAlreadyInUse);
static_assert(number(kErrors, hetcclRuntimeErrorPeerAccessUnsupported) ==
              hipErrorPeerAccessUnsupported);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidKernel) == hipErrorInvalidKernelFile);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidSource) == hipErrorInvalidSource);
static_assert(number(kErrors, hetcclRuntimeErrorFileNotFound) == hipErrorFileNotFound);
static_assert(number(kErrors, hetcclRuntimeErrorSharedObjectSymbolNotFound) ==
              hipErrorSharedObjectSymbolNotFound);
static_assert(number(kErrors, hetcclRuntimeErrorSharedObjectInitFailed) ==
              hipErrorSharedObjectInitFailed);
static_assert(number(kErrors, hetcclRuntimeErrorOperatingSystem) == hipErrorOperatingSystem);
static_assert(number(kErrors, hetcclRuntimeErrorInvalidHandle) == hipErrorInvalidHandle);
static_assert(number(kErrors, hetcclRuntimeErrorIllegalState) == hipErrorIllegalState);
static_assert(number(kErrors, hetcclRuntimeErrorNotFound) == hipErrorNotFound);
static_assert(number(kErrors, hetcclRuntimeErrorNotReady) == hipErrorNotReady);
static_assert(number(kErrors, hetcclRuntimeErrorIllegalAddress) == hipErrorIllegalAddress);
static_assert(number(kErrors, hetcclRuntimeErrorLaunchOutOfResources) ==
              hipErrorLaunchOutOfResources);
static_assert(number(kErrors, hetcclRuntimeErrorLaunchTimeout) == hipErrorLaunchTimeOut);
static_assert(number(kErrors, hetcclRuntimeErrorPeerAccessAlreadyEnabled) ==
              hipErrorPeerAccessAlreadyEnabled);
static_assert(number(kErrors, hetcclRuntimeErrorPeerAccessNotEnabled) ==
              hipErrorPeerAccessNotEnabled);
static_assert(number(kErrors, hetcclRuntimeErrorSetOnActiveProcess) == hipErrorSetOnActiveProcess);
static_assert(number(kErrors, hetcclRuntimeErrorContextIsDestroyed) == hipErrorContextIsDestroyed);
static_assert(number(kErrors, hetcclRuntimeErrorAssert) == hipErrorAssert);
static_assert(number(kErrors, hetcclRuntimeErrorHostMemoryAlreadyRegistered) ==
              hipErrorHostMemoryAlreadyRegistered);
static_assert(number(kErrors, hetcclRuntimeErrorHostMemoryNotRegistered) ==
              hipErrorHostMemoryNotRegistered);
static_assert(number(kErrors, hetcclRuntimeErrorLaunchFailure) == hipErrorLaunchFailure);
static_assert(number(kErrors, hetcclRuntimeErrorCooperativeLaunchTooLarge) ==
              hipErrorCooperativeLaunchTooLarge);
static_assert(number(kErrors, hetcclRuntimeErrorNotSupported) == hipErrorNotSupported);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureUnsupported) ==
              hipErrorStreamCaptureUnsupported);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureInvalidated) ==
              hipErrorStreamCaptureInvalidated);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureMerge) == hipErrorStreamCaptureMerge);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureUnmatched) ==
              hipErrorStreamCaptureUnmatched);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureUnjoined) ==
              hipErrorStreamCaptureUnjoined);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureIsolation) ==
              hipErrorStreamCaptureIsolation);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureImplicit) ==
              hipErrorStreamCaptureImplicit);
static_assert(number(kErrors, hetcclRuntimeErrorCapturedEvent) == hipErrorCapturedEvent);
static_assert(number(kErrors, hetcclRuntimeErrorStreamCaptureWrongThread) ==
              hipErrorStreamCaptureWrongThread);
static_assert(number(kErrors, hetcclRuntimeErrorGraphExecUpdateFailure) ==
              hipErrorGraphExecUpdateFailure);
static_assert(number(kErrors, hetcclRuntimeErrorUnknown) == hipErrorUnknown);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxThreadsPerBlock) ==
              hipDeviceAttributeMaxThreadsPerBlock);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxBlockDimX) ==
              hipDeviceAttributeMaxBlockDimX);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxBlockDimY) ==
              hipDeviceAttributeMaxBlockDimY);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxBlockDimZ) ==
              hipDeviceAttributeMaxBlockDimZ);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxGridDimX) ==
              hipDeviceAttributeMaxGridDimX);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxGridDimY) ==
              hipDeviceAttributeMaxGridDimY);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxGridDimZ) ==
              hipDeviceAttributeMaxGridDimZ);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxSharedMemoryPerBlock) ==
              hipDeviceAttributeMaxSharedMemoryPerBlock);
static_assert(number(kAttributes, hetcclRuntimeAttributeTotalConstantMemory) ==
              hipDeviceAttributeTotalConstantMemory);
static_assert(number(kAttributes, hetcclRuntimeAttributeWarpSize) == hipDeviceAttributeWarpSize);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxPitch) == hipDeviceAttributeMaxPitch);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxRegistersPerBlock) ==
              hipDeviceAttributeMaxRegistersPerBlock);
static_assert(number(kAttributes, hetcclRuntimeAttributeClockRate) == hipDeviceAttributeClockRate);
static_assert(number(kAttributes, hetcclRuntimeAttributeTextureAlignment) ==
              hipDeviceAttributeTextureAlignment);
static_assert(number(kAttributes, hetcclRuntimeAttributeMultiprocessorCount) ==
              hipDeviceAttributeMultiprocessorCount);
static_assert(number(kAttributes, hetcclRuntimeAttributeKernelTimeout) ==
              hipDeviceAttributeKernelExecTimeout);
static_assert(number(kAttributes, hetcclRuntimeAttributeIntegrated) ==
              hipDeviceAttributeIntegrated);
static_assert(number(kAttributes, hetcclRuntimeAttributeCanMapHostMemory) ==
              hipDeviceAttributeCanMapHostMemory);
static_assert(number(kAttributes, hetcclRuntimeAttributeComputeMode) ==
              hipDeviceAttributeComputeMode);
static_assert(number(kAttributes, hetcclRuntimeAttributeConcurrentKernels) ==
              hipDeviceAttributeConcurrentKernels);
static_assert(number(kAttributes, hetcclRuntimeAttributeEccEnabled) ==
              hipDeviceAttributeEccEnabled);
static_assert(number(kAttributes, hetcclRuntimeAttributePciBusId) == hipDeviceAttributePciBusId);
static_assert(number(kAttributes, hetcclRuntimeAttributePciDeviceId) ==
              hipDeviceAttributePciDeviceId);
static_assert(number(kAttributes, hetcclRuntimeAttributePciDomainId) ==
              hipDeviceAttributePciDomainID);
static_assert(number(kAttributes, hetcclRuntimeAttributeMemoryClockRate) ==
              hipDeviceAttributeMemoryClockRate);
static_assert(number(kAttributes, hetcclRuntimeAttributeMemoryBusWidth) ==
              hipDeviceAttributeMemoryBusWidth);
static_assert(number(kAttributes, hetcclRuntimeAttributeL2CacheSize) ==
              hipDeviceAttributeL2CacheSize);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxThreadsPerMultiprocessor) ==
              hipDeviceAttributeMaxThreadsPerMultiProcessor);
static_assert(number(kAttributes, hetcclRuntimeAttributeAsyncEngineCount) ==
              hipDeviceAttributeAsyncEngineCount);
static_assert(number(kAttributes, hetcclRuntimeAttributeUnifiedAddressing) ==
              hipDeviceAttributeUnifiedAddressing);
static_assert(number(kAttributes, hetcclRuntimeAttributeComputeCapabilityMajor) ==
              hipDeviceAttributeComputeCapabilityMajor);
static_assert(number(kAttributes, hetcclRuntimeAttributeComputeCapabilityMinor) ==
              hipDeviceAttributeComputeCapabilityMinor);
static_assert(number(kAttributes, hetcclRuntimeAttributeStreamPriorities) ==
              hipDeviceAttributeStreamPrioritiesSupported);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxSharedMemoryPerMultiprocessor) ==
              hipDeviceAttributeSharedMemPerMultiprocessor);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxRegistersPerMultiprocessor) ==
              hipDeviceAttributeMaxRegistersPerMultiprocessor);
static_assert(number(kAttributes, hetcclRuntimeAttributeManagedMemory) ==
              hipDeviceAttributeManagedMemory);
static_assert(number(kAttributes, hetcclRuntimeAttributeIsMultiGpuBoard) ==
              hipDeviceAttributeIsMultiGpuBoard);
static_assert(number(kAttributes, hetcclRuntimeAttributeMultiGpuBoardGroup) ==
              hipDeviceAttributeMultiGpuBoardGroupID);
static_assert(number(kAttributes, hetcclRuntimeAttributeHostNativeAtomics) ==
              hipDeviceAttributeHostNativeAtomicSupported);
static_assert(number(kAttributes, hetcclRuntimeAttributePageableMemoryAccess) ==
              hipDeviceAttributePageableMemoryAccess);
static_assert(number(kAttributes, hetcclRuntimeAttributeConcurrentManagedAccess) ==
              hipDeviceAttributeConcurrentManagedAccess);
static_assert(number(kAttributes, hetcclRuntimeAttributeComputePreemption) ==
              hipDeviceAttributeComputePreemptionSupported);
static_assert(number(kAttributes, hetcclRuntimeAttributeHostPointerForRegisteredMemory) ==
              hipDeviceAttributeCanUseHostPointerForRegisteredMem);
static_assert(number(kAttributes, hetcclRuntimeAttributeCooperativeLaunch) ==
              hipDeviceAttributeCooperativeLaunch);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxSharedMemoryPerBlockOptin) ==
              hipDeviceAttributeSharedMemPerBlockOptin);
static_assert(number(kAttributes, hetcclRuntimeAttributeHostRegister) ==
              hipDeviceAttributeHostRegisterSupported);
static_assert(number(kAttributes, hetcclRuntimeAttributePageableMemoryUsesHostPageTables) ==
              hipDeviceAttributePageableMemoryAccessUsesHostPageTables);
static_assert(number(kAttributes, hetcclRuntimeAttributeDirectManagedAccessFromHost) ==
              hipDeviceAttributeDirectManagedMemAccessFromHost);
static_assert(number(kAttributes, hetcclRuntimeAttributeMaxBlocksPerMultiprocessor) ==
              hipDeviceAttributeMaxBlocksPerMultiProcessor);
static_assert(number(kAttributes, hetcclRuntimeAttributeMemoryPools) ==
              hipDeviceAttributeMemoryPoolsSupported);
static_assert(number(kAttributes, hetcclRuntimeAttributeLargeBar) == hipDeviceAttributeIsLargeBar);
static_assert(number(kAttributes, hetcclRuntimeAttributeStreamWaitValue) ==
              hipDeviceAttributeCanUseStreamWaitValue);
static_assert(number(kAttributes, hetcclRuntimeAttributeFineGrainedMemory) ==
              hipDeviceAttributeFineGrainSupport);
static_assert(number(kAttributes, hetcclRuntimeAttributeWallClockRate) ==
              hipDeviceAttributeWallClockRate);
static_assert(number(kAttributes, hetcclRuntimeAttributePhysicalMultiprocessors) ==
              hipDeviceAttributePhysicalMultiProcessorCount);

static_assert(number(kFuncAttributes, hetcclRuntimeFuncMaxDynamicSharedMemory) ==
              hipFuncAttributeMaxDynamicSharedMemorySize);
static_assert(number(kFuncAttributes, hetcclRuntimeFuncSharedMemoryCarveout) ==
              hipFuncAttributePreferredSharedMemoryCarveout);
static_assert(number(kHostFlags, hetcclRuntimeHostPortable) == hipHostAllocPortable);
static_assert(number(kHostFlags, hetcclRuntimeHostMapped) == hipHostAllocMapped);
static_assert(number(kHostFlags, hetcclRuntimeHostWriteCombined) == hipHostAllocWriteCombined);
static_assert(number(kRegisterFlags, hetcclRuntimeRegisterPortable) == hipHostRegisterPortable);
static_assert(number(kRegisterFlags, hetcclRuntimeRegisterMapped) == hipHostRegisterMapped);
static_assert(number(kRegisterFlags, hetcclRuntimeRegisterIoMemory) == hipHostRegisterIoMemory);
static_assert(number(kEventFlags, hetcclRuntimeEventBlockingSync) == hipEventBlockingSync);
static_assert(number(kEventFlags, hetcclRuntimeEventDisableTiming) == hipEventDisableTiming);
static_assert(number(kEventFlags, hetcclRuntimeEventInterprocess) == hipEventInterprocess);
static_assert(number(kHostFlags, hetcclRuntimeHostPortable) == hipHostMallocPortable);
static_assert(number(kHostFlags, hetcclRuntimeHostMapped) == hipHostMallocMapped);
static_assert(number(kHostFlags, hetcclRuntimeHostWriteCombined) == hipHostMallocWriteCombined);
static_assert(number(kHostFlags, hetcclRuntimeHostNumaUser) == hipHostMallocNumaUser);
static_assert(number(kHostFlags, hetcclRuntimeHostCoherent) == hipHostMallocCoherent);
static_assert(number(kHostFlags, hetcclRuntimeHostNonCoherent) == hipHostMallocNonCoherent);
static_assert(number(kRegisterFlags, hetcclRuntimeRegisterCoarseGrained) ==
              hipExtHostRegisterCoarseGrained);
static_assert(number(kEventFlags, hetcclRuntimeEventDisableSystemFence) ==
              hipEventDisableSystemFence);
static_assert(number(kExtMallocs, hetcclRuntimeExtMallocDefault) == hipDeviceMallocDefault);
static_assert(number(kExtMallocs, hetcclRuntimeExtMallocFineGrained) == hipDeviceMallocFinegrained);
static_assert(number(kExtMallocs, hetcclRuntimeExtMallocSignal) == hipMallocSignalMemory);
static_assert(number(kExtMallocs, hetcclRuntimeExtMallocUncached) == hipDeviceMallocUncached);
static_assert(number(kExtMallocs, hetcclRuntimeExtMallocContiguous) == hipDeviceMallocContiguous);

static_assert(int(hetcclRuntimeMemcpyHostToHost) == int(hipMemcpyHostToHost));
static_assert(int(hetcclRuntimeMemcpyHostToDevice) == int(hipMemcpyHostToDevice));
static_assert(int(hetcclRuntimeMemcpyDeviceToHost) == int(hipMemcpyDeviceToHost));
static_assert(int(hetcclRuntimeMemcpyDeviceToDevice) == int(hipMemcpyDeviceToDevice));
static_assert(int(hetcclRuntimeMemcpyDefault) == int(hipMemcpyDefault));
static_assert(int(hetcclRuntimeAttachGlobal) == int(hipMemAttachGlobal));
static_assert(int(hetcclRuntimeAttachHost) == int(hipMemAttachHost));
static_assert(int(hetcclRuntimeStreamDefault) == int(hipStreamDefault));
static_assert(int(hetcclRuntimeStreamNonBlocking) == int(hipStreamNonBlocking));
static_assert(int(hetcclRuntimeEventWaitDefault) == int(hipEventWaitDefault));
static_assert(int(hetcclRuntimeEventWaitExternal) == int(hipEventWaitExternal));
static_assert(int(hetcclRuntimeIpcLazyEnablePeerAccess) == int(hipIpcMemLazyEnablePeerAccess));
static_assert(int(hetcclRuntimeCaptureGlobal) == int(hipStreamCaptureModeGlobal));
static_assert(int(hetcclRuntimeCaptureThreadLocal) == int(hipStreamCaptureModeThreadLocal));
static_assert(int(hetcclRuntimeCaptureRelaxed) == int(hipStreamCaptureModeRelaxed));
static_assert(int(hetcclRuntimeCaptureNone) == int(hipStreamCaptureStatusNone));
static_assert(int(hetcclRuntimeCaptureActive) == int(hipStreamCaptureStatusActive));
static_assert(int(hetcclRuntimeCaptureInvalidated) == int(hipStreamCaptureStatusInvalidated));
static_assert(int(hetcclRuntimeGraphAutoFreeOnLaunch) ==
              int(hipGraphInstantiateFlagAutoFreeOnLaunch));
static_assert(int(hetcclRuntimeGraphUpload) == int(hipGraphInstantiateFlagUpload));
static_assert(int(hetcclRuntimeGraphDeviceLaunch) == int(hipGraphInstantiateFlagDeviceLaunch));
static_assert(int(hetcclRuntimeGraphUseNodePriority) ==
              int(hipGraphInstantiateFlagUseNodePriority));
static_assert(int(hetcclRuntimeLimitStackSize) == int(hipLimitStackSize));
static_assert(int(hetcclRuntimeLimitPrintfFifoSize) == int(hipLimitPrintfFifoSize));
static_assert(int(hetcclRuntimeLimitMallocHeapSize) == int(hipLimitMallocHeapSize));
static_assert(int(hetcclRuntimeMemoryUnregistered) == int(hipMemoryTypeUnregistered));
static_assert(int(hetcclRuntimeMemoryHost) == int(hipMemoryTypeHost));
static_assert(int(hetcclRuntimeMemoryDevice) == int(hipMemoryTypeDevice));
static_assert(int(hetcclRuntimeMemoryManaged) == int(hipMemoryTypeManaged));

static_assert(sizeof(hipPointerAttribute_t) <= sizeof(PointerAttributes));
static_assert(offsetof(PointerAttributes, type) == offsetof(hipPointerAttribute_t, type));
static_assert(offsetof(PointerAttributes, device) == offsetof(hipPointerAttribute_t, device));
static_assert(offsetof(PointerAttributes, device_pointer) ==
              offsetof(hipPointerAttribute_t, devicePointer));
static_assert(offsetof(PointerAttributes, host_pointer) ==
              offsetof(hipPointerAttribute_t, hostPointer));
static_assert(sizeof(hipFuncAttributes) <= sizeof(HipFuncAttributes));
static_assert(offsetof(HipFuncAttributes, shared) == offsetof(hipFuncAttributes, sharedSizeBytes));
static_assert(offsetof(HipFuncAttributes, constant) == offsetof(hipFuncAttributes, constSizeBytes));
static_assert(offsetof(HipFuncAttributes, local) == offsetof(hipFuncAttributes, localSizeBytes));
static_assert(offsetof(HipFuncAttributes, threads) ==
              offsetof(hipFuncAttributes, maxThreadsPerBlock));
static_assert(offsetof(HipFuncAttributes, registers) == offsetof(hipFuncAttributes, numRegs));
static_assert(offsetof(HipFuncAttributes, binary_version) ==
              offsetof(hipFuncAttributes, binaryVersion));
static_assert(offsetof(HipFuncAttributes, dynamic_shared) ==
              offsetof(hipFuncAttributes, maxDynamicSharedSizeBytes));
static_assert(offsetof(HipFuncAttributes, carveout) ==
              offsetof(hipFuncAttributes, preferredShmemCarveout));
static_assert(sizeof(hipDeviceProp_tR0600) <= sizeof(DeviceProperties));
static_assert(offsetof(DeviceProperties, name) == offsetof(hipDeviceProp_tR0600, name));
static_assert(offsetof(DeviceProperties, total_memory) ==
              offsetof(hipDeviceProp_tR0600, totalGlobalMem));
static_assert(kHipArchitectureOffset == offsetof(hipDeviceProp_tR0600, gcnArchName));
static_assert(sizeof(hipDeviceProp_tR0600::gcnArchName) == 256);
static_assert(hipExtAnyOrderLaunch == 1);

// The vendor's functions take what the entries give them: pointers, numbers and structs by value.
static_assert(sizeof(hipIpcMemHandle_t) == sizeof(hetcclRuntimeIpcMemHandle_t));
static_assert(sizeof(dim3) == sizeof(hetcclRuntimeDim3));
static_assert(sizeof(hipHostNodeParams) == sizeof(hetcclRuntimeHostNode_t));
static_assert(offsetof(hipHostNodeParams, userData) == offsetof(hetcclRuntimeHostNode_t, context));
static_assert(sizeof(hipMemcpyKind) == sizeof(hetcclRuntimeMemcpyKind_t));
static_assert(sizeof(hipStreamCaptureStatus) == sizeof(hetcclRuntimeCaptureStatus_t));
static_assert(sizeof(hipStreamCaptureMode) == sizeof(hetcclRuntimeCaptureMode_t));

#define HETCCL_TAKES(call, ...) \
  static_assert(sizeof(static_cast<hipError_t (*)(__VA_ARGS__)>(&call)) == sizeof(void*))
HETCCL_TAKES(hipThreadExchangeStreamCaptureMode, hipStreamCaptureMode*);
HETCCL_TAKES(hipMalloc, void**, size_t);
HETCCL_TAKES(hipMallocHost, void**, size_t);
HETCCL_TAKES(hipMallocManaged, void**, size_t, unsigned);
HETCCL_TAKES(hipHostAlloc, void**, size_t, unsigned);
HETCCL_TAKES(hipGetDevice, int*);
HETCCL_TAKES(hipSetDevice, int);
HETCCL_TAKES(hipGetLastError);
HETCCL_TAKES(hipDeviceCanAccessPeer, int*, int, int);
HETCCL_TAKES(hipFreeHost, void*);
HETCCL_TAKES(hipDeviceGetAttribute, int*, hipDeviceAttribute_t, int);
HETCCL_TAKES(hipStreamCreateWithFlags, hipStream_t*, unsigned);
HETCCL_TAKES(hipMemcpy, void*, const void*, size_t, hipMemcpyKind);
HETCCL_TAKES(hipMemcpyAsync, void*, const void*, size_t, hipMemcpyKind, hipStream_t);
HETCCL_TAKES(hipFree, void*);
HETCCL_TAKES(hipMemset, void*, int, size_t);
HETCCL_TAKES(hipMemsetAsync, void*, int, size_t, hipStream_t);
HETCCL_TAKES(hipStreamQuery, hipStream_t);
HETCCL_TAKES(hipStreamSynchronize, hipStream_t);
HETCCL_TAKES(hipStreamDestroy, hipStream_t);
HETCCL_TAKES(hipEventCreate, hipEvent_t*);
HETCCL_TAKES(hipEventCreateWithFlags, hipEvent_t*, unsigned);
HETCCL_TAKES(hipEventQuery, hipEvent_t);
HETCCL_TAKES(hipEventRecord, hipEvent_t, hipStream_t);
HETCCL_TAKES(hipStreamWaitEvent, hipStream_t, hipEvent_t, unsigned);
HETCCL_TAKES(hipEventDestroy, hipEvent_t);
HETCCL_TAKES(hipLaunchHostFunc, hipStream_t, hipHostFn_t, void*);
HETCCL_TAKES(hipIpcOpenMemHandle, void**, hipIpcMemHandle_t, unsigned);
HETCCL_TAKES(hipIpcCloseMemHandle, void*);
HETCCL_TAKES(hipIpcGetMemHandle, hipIpcMemHandle_t*, void*);
HETCCL_TAKES(hipHostRegister, void*, size_t, unsigned);
HETCCL_TAKES(hipHostUnregister, void*);
HETCCL_TAKES(hipHostGetDevicePointer, void**, void*, unsigned);
HETCCL_TAKES(hipDeviceGetPCIBusId, char*, int, int);
HETCCL_TAKES(hipDeviceGetByPCIBusId, int*, const char*);
HETCCL_TAKES(hipDeviceEnablePeerAccess, int, unsigned);
HETCCL_TAKES(hipGetDeviceCount, int*);
HETCCL_TAKES(hipFuncSetAttribute, const void*, hipFuncAttribute, int);
HETCCL_TAKES(hipFuncGetAttributes, hipFuncAttributes*, const void*);
HETCCL_TAKES(hipLaunchKernel, const void*, dim3, dim3, void**, size_t, hipStream_t);
HETCCL_TAKES(hipDeviceSetLimit, hipLimit_t, size_t);
HETCCL_TAKES(hipGraphAddHostNode, hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t,
             const hipHostNodeParams*);
HETCCL_TAKES(hipGraphInstantiateWithFlags, hipGraphExec_t*, hipGraph_t, unsigned long long);
HETCCL_TAKES(hipGraphLaunch, hipGraphExec_t, hipStream_t);
HETCCL_TAKES(hipGraphExecDestroy, hipGraphExec_t);
HETCCL_TAKES(hipGraphDestroy, hipGraph_t);
HETCCL_TAKES(hipDeviceSynchronize);
HETCCL_TAKES(hipStreamBeginCapture, hipStream_t, hipStreamCaptureMode);
HETCCL_TAKES(hipStreamEndCapture, hipStream_t, hipGraph_t*);
HETCCL_TAKES(hipDeviceReset);
HETCCL_TAKES(hipPointerGetAttributes, hipPointerAttribute_t*, const void*);
HETCCL_TAKES(hipStreamCreate, hipStream_t*);
HETCCL_TAKES(hipEventElapsedTime, float*, hipEvent_t, hipEvent_t);
HETCCL_TAKES(hipExtMallocWithFlags, void**, size_t, unsigned);
HETCCL_TAKES(hipHostMalloc, void**, size_t, unsigned);
HETCCL_TAKES(hipHostFree, void*);
HETCCL_TAKES(hipExtLaunchKernel, const void*, dim3, dim3, void**, size_t, hipStream_t, hipEvent_t,
             hipEvent_t, int);
HETCCL_TAKES(hipExtStreamCreateWithCUMask, hipStream_t*, uint32_t, const uint32_t*);
HETCCL_TAKES(hipExtGetLinkTypeAndHopCount, int, int, uint32_t*, uint32_t*);
HETCCL_TAKES(hipStreamGetCaptureInfo_v2, hipStream_t, hipStreamCaptureStatus*, unsigned long long*,
             hipGraph_t*, const hipGraphNode_t**, size_t*);

}  // namespace
}  // namespace hetccl::runtime
