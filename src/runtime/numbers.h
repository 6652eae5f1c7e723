// The vendors' values of neutral numbers, and the beginnings of vendors' structs: facts of CUDA's
// driver_types.h and HIP's hip_runtime_api.h, which tests/cudart and tests/amd compare. Numbers
// that are equal everywhere (kinds of copies, modes and states of captures, limits, flags of
// streams, graphs and IPC) are only in the public header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "hetccl/runtime.h"

namespace hetccl::runtime {

inline constexpr int64_t kNone = -1;  ///< the vendor lacks it

struct Number {
  int64_t neutral, cuda, hip;
};

inline constexpr std::array kErrors = {
    Number{hetcclRuntimeSuccess, 0, 0},
    Number{hetcclRuntimeErrorInvalidValue, 1, 1},
    Number{hetcclRuntimeErrorMemoryAllocation, 2, 2},
    Number{hetcclRuntimeErrorInitialization, 3, 3},
    Number{hetcclRuntimeErrorUnloading, 4, 4},
    Number{hetcclRuntimeErrorInvalidConfiguration, 9, 9},
    Number{hetcclRuntimeErrorInvalidPitch, 12, 12},
    Number{hetcclRuntimeErrorInvalidSymbol, 13, 13},
    Number{hetcclRuntimeErrorInvalidDevicePointer, 17, 17},
    Number{hetcclRuntimeErrorInvalidTexture, 18, 912},
    Number{hetcclRuntimeErrorInvalidChannelDescriptor, 20, 911},
    Number{hetcclRuntimeErrorInvalidMemcpyDirection, 21, 21},
    Number{hetcclRuntimeErrorInsufficientDriver, 35, 35},
    Number{hetcclRuntimeErrorMissingConfiguration, 52, 52},
    Number{hetcclRuntimeErrorPriorLaunchFailure, 53, 53},
    Number{hetcclRuntimeErrorInvalidDeviceFunction, 98, 98},
    Number{hetcclRuntimeErrorNoDevice, 100, 100},
    Number{hetcclRuntimeErrorInvalidDevice, 101, 101},
    Number{hetcclRuntimeErrorInvalidImage, 200, 200},
    Number{hetcclRuntimeErrorInvalidContext, 201, 201},
    Number{hetcclRuntimeErrorAlreadyMapped, 208, 208},
    Number{hetcclRuntimeErrorNoKernelImage, 209, 209},
    Number{hetcclRuntimeErrorNotMapped, 211, 211},
    Number{hetcclRuntimeErrorEccUncorrectable, 214, 214},
    Number{hetcclRuntimeErrorUnsupportedLimit, 215, 215},
    Number{hetcclRuntimeErrorDeviceInUse, 216, 216},
    Number{hetcclRuntimeErrorPeerAccessUnsupported, 217, 217},
    Number{hetcclRuntimeErrorInvalidKernel, 218, 218},
    Number{hetcclRuntimeErrorInvalidSource, 300, 300},
    Number{hetcclRuntimeErrorFileNotFound, 301, 301},
    Number{hetcclRuntimeErrorSharedObjectSymbolNotFound, 302, 302},
    Number{hetcclRuntimeErrorSharedObjectInitFailed, 303, 303},
    Number{hetcclRuntimeErrorOperatingSystem, 304, 304},
    Number{hetcclRuntimeErrorInvalidHandle, 400, 400},
    Number{hetcclRuntimeErrorIllegalState, 401, 401},
    Number{hetcclRuntimeErrorNotFound, 500, 500},
    Number{hetcclRuntimeErrorNotReady, 600, 600},
    Number{hetcclRuntimeErrorIllegalAddress, 700, 700},
    Number{hetcclRuntimeErrorLaunchOutOfResources, 701, 701},
    Number{hetcclRuntimeErrorLaunchTimeout, 702, 702},
    Number{hetcclRuntimeErrorPeerAccessAlreadyEnabled, 704, 704},
    Number{hetcclRuntimeErrorPeerAccessNotEnabled, 705, 705},
    Number{hetcclRuntimeErrorSetOnActiveProcess, 708, 708},
    Number{hetcclRuntimeErrorContextIsDestroyed, 709, 709},
    Number{hetcclRuntimeErrorAssert, 710, 710},
    Number{hetcclRuntimeErrorHostMemoryAlreadyRegistered, 712, 712},
    Number{hetcclRuntimeErrorHostMemoryNotRegistered, 713, 713},
    Number{hetcclRuntimeErrorLaunchFailure, 719, 719},
    Number{hetcclRuntimeErrorCooperativeLaunchTooLarge, 720, 720},
    Number{hetcclRuntimeErrorNotSupported, 801, 801},
    Number{hetcclRuntimeErrorStreamCaptureUnsupported, 900, 900},
    Number{hetcclRuntimeErrorStreamCaptureInvalidated, 901, 901},
    Number{hetcclRuntimeErrorStreamCaptureMerge, 902, 902},
    Number{hetcclRuntimeErrorStreamCaptureUnmatched, 903, 903},
    Number{hetcclRuntimeErrorStreamCaptureUnjoined, 904, 904},
    Number{hetcclRuntimeErrorStreamCaptureIsolation, 905, 905},
    Number{hetcclRuntimeErrorStreamCaptureImplicit, 906, 906},
    Number{hetcclRuntimeErrorCapturedEvent, 907, 907},
    Number{hetcclRuntimeErrorStreamCaptureWrongThread, 908, 908},
    Number{hetcclRuntimeErrorGraphExecUpdateFailure, 910, 910},
    Number{hetcclRuntimeErrorUnknown, 999, 999},
};

inline constexpr std::array kAttributes = {
    Number{hetcclRuntimeAttributeMaxThreadsPerBlock, 1, 56},
    Number{hetcclRuntimeAttributeMaxBlockDimX, 2, 26},
    Number{hetcclRuntimeAttributeMaxBlockDimY, 3, 27},
    Number{hetcclRuntimeAttributeMaxBlockDimZ, 4, 28},
    Number{hetcclRuntimeAttributeMaxGridDimX, 5, 29},
    Number{hetcclRuntimeAttributeMaxGridDimY, 6, 30},
    Number{hetcclRuntimeAttributeMaxGridDimZ, 7, 31},
    Number{hetcclRuntimeAttributeMaxSharedMemoryPerBlock, 8, 74},
    Number{hetcclRuntimeAttributeTotalConstantMemory, 9, 83},
    Number{hetcclRuntimeAttributeWarpSize, 10, 87},
    Number{hetcclRuntimeAttributeMaxPitch, 11, 58},
    Number{hetcclRuntimeAttributeMaxRegistersPerBlock, 12, 71},
    Number{hetcclRuntimeAttributeClockRate, 13, 5},
    Number{hetcclRuntimeAttributeTextureAlignment, 14, 81},
    Number{hetcclRuntimeAttributeMultiprocessorCount, 16, 63},
    Number{hetcclRuntimeAttributeKernelTimeout, 17, 18},
    Number{hetcclRuntimeAttributeIntegrated, 18, 16},
    Number{hetcclRuntimeAttributeCanMapHostMemory, 19, 3},
    Number{hetcclRuntimeAttributeComputeMode, 20, 6},
    Number{hetcclRuntimeAttributeConcurrentKernels, 31, 8},
    Number{hetcclRuntimeAttributeEccEnabled, 32, 0},
    Number{hetcclRuntimeAttributePciBusId, 33, 67},
    Number{hetcclRuntimeAttributePciDeviceId, 34, 68},
    Number{hetcclRuntimeAttributePciDomainId, 50, 69},
    Number{hetcclRuntimeAttributeMemoryClockRate, 36, 60},
    Number{hetcclRuntimeAttributeMemoryBusWidth, 37, 59},
    Number{hetcclRuntimeAttributeL2CacheSize, 38, 19},
    Number{hetcclRuntimeAttributeMaxThreadsPerMultiprocessor, 39, 57},
    Number{hetcclRuntimeAttributeAsyncEngineCount, 40, 2},
    Number{hetcclRuntimeAttributeUnifiedAddressing, 41, 85},
    Number{hetcclRuntimeAttributeComputeCapabilityMajor, 75, 23},
    Number{hetcclRuntimeAttributeComputeCapabilityMinor, 76, 61},
    Number{hetcclRuntimeAttributeStreamPriorities, 78, 78},
    Number{hetcclRuntimeAttributeMaxSharedMemoryPerMultiprocessor, 81, 76},
    Number{hetcclRuntimeAttributeMaxRegistersPerMultiprocessor, 82, 72},
    Number{hetcclRuntimeAttributeManagedMemory, 83, 24},
    Number{hetcclRuntimeAttributeIsMultiGpuBoard, 84, 17},
    Number{hetcclRuntimeAttributeMultiGpuBoardGroup, 85, 62},
    Number{hetcclRuntimeAttributeHostNativeAtomics, 86, 15},
    Number{hetcclRuntimeAttributePageableMemoryAccess, 88, 65},
    Number{hetcclRuntimeAttributeConcurrentManagedAccess, 89, 9},
    Number{hetcclRuntimeAttributeComputePreemption, 90, 7},
    Number{hetcclRuntimeAttributeHostPointerForRegisteredMemory, 91, 4},
    Number{hetcclRuntimeAttributeCooperativeLaunch, 95, 10},
    Number{hetcclRuntimeAttributeMaxSharedMemoryPerBlockOptin, 97, 75},
    Number{hetcclRuntimeAttributeHostRegister, 99, 90},
    Number{hetcclRuntimeAttributePageableMemoryUsesHostPageTables, 100, 66},
    Number{hetcclRuntimeAttributeDirectManagedAccessFromHost, 101, 13},
    Number{hetcclRuntimeAttributeMaxBlocksPerMultiprocessor, 106, 25},
    Number{hetcclRuntimeAttributeMemoryPools, 115, 88},
    Number{hetcclRuntimeAttributeGpuDirectRdma, 116, kNone},
    Number{hetcclRuntimeAttributeLargeBar, kNone, 10011},
    Number{hetcclRuntimeAttributeStreamWaitValue, kNone, 10013},
    Number{hetcclRuntimeAttributeFineGrainedMemory, kNone, 10016},
    Number{hetcclRuntimeAttributeWallClockRate, kNone, 10017},
    Number{hetcclRuntimeAttributePhysicalMultiprocessors, kNone, 10015},
};

inline constexpr std::array kFuncAttributes = {
    Number{hetcclRuntimeFuncMaxDynamicSharedMemory, 8, 8},
    Number{hetcclRuntimeFuncSharedMemoryCarveout, 9, 9},
};

// Flags: 0 if a vendor needs none.
inline constexpr std::array kHostFlags = {
    Number{hetcclRuntimeHostPortable, 1, 1},
    Number{hetcclRuntimeHostMapped, 2, 2},
    Number{hetcclRuntimeHostWriteCombined, 4, 4},
    Number{hetcclRuntimeHostNumaUser, 0, 0x20000000},
    Number{hetcclRuntimeHostCoherent, 0, 0x40000000},
    Number{hetcclRuntimeHostNonCoherent, 0, 0x80000000},
};
// HIP's 8 is hipExtHostRegisterCoarseGrained, so its read-only flag has another number.
inline constexpr std::array kRegisterFlags = {
    Number{hetcclRuntimeRegisterPortable, 1, 1},
    Number{hetcclRuntimeRegisterMapped, 2, 2},
    Number{hetcclRuntimeRegisterIoMemory, 4, 4},
    Number{hetcclRuntimeRegisterReadOnly, 8, kNone},
    Number{hetcclRuntimeRegisterCoarseGrained, 0, 8},
};
inline constexpr std::array kEventFlags = {
    Number{hetcclRuntimeEventBlockingSync, 1, 1},
    Number{hetcclRuntimeEventDisableTiming, 2, 2},
    Number{hetcclRuntimeEventInterprocess, 4, 4},
    Number{hetcclRuntimeEventDisableSystemFence, 0, 0x20000000},
};
inline constexpr std::array kExtMallocs = {
    Number{hetcclRuntimeExtMallocDefault, kNone, 0},
    Number{hetcclRuntimeExtMallocFineGrained, kNone, 1},
    Number{hetcclRuntimeExtMallocSignal, kNone, 2},
    Number{hetcclRuntimeExtMallocUncached, kNone, 3},
    Number{hetcclRuntimeExtMallocContiguous, kNone, 4},
};

// The size of structs that a vendor fills, with room for later versions' fields.
inline constexpr size_t kRoom = 4096;

/// The beginning of cudaPointerAttributes and hipPointerAttribute_t.
struct PointerAttributes {
  int type, device;
  void *device_pointer, *host_pointer;
  std::array<char, kRoom> room;
};

/// The beginning of cudaFuncAttributes.
struct CudaFuncAttributes {
  size_t shared, constant, local;
  int threads, registers, ptx_version, binary_version, cache_mode, dynamic_shared, carveout;
  std::array<char, kRoom> room;
};

/// The layout of hipFuncAttributes.
struct HipFuncAttributes {
  int binary_version, cache_mode;
  size_t constant, local;
  int dynamic_shared, threads, registers, carveout, ptx_version;
  size_t shared;
  std::array<char, kRoom> room;
};

/// The beginning of every version's cudaDeviceProp, and of hipDeviceProp_tR0600.
struct DeviceProperties {
  std::array<char, 256> name;
  std::array<char, 28> ids;
  size_t total_memory;
  std::array<char, kRoom> room;
};
/// The offset of the 256 bytes of gcnArchName in hipDeviceProp_tR0600.
inline constexpr size_t kHipArchitectureOffset = 1160;

}  // namespace hetccl::runtime
