// NVIDIA's enumerators as numbers, from the driver API's documentation. They are ABI constants.
#pragma once

namespace forward::cuda {

enum Result : int { kSuccess = 0, kInvalidValue = 1, kNotReady = 600, kNotPermitted = 800 };

enum HostFlag : unsigned { kHostPortable = 1, kHostDeviceMap = 2, kHostWriteCombined = 4 };
enum RegisterFlag : unsigned { kRegisterPortable = 1, kRegisterDeviceMap = 2 };
enum EventFlag : unsigned {
  kEventBlockingSync = 1,
  kEventDisableTiming = 2,
  kEventInterprocess = 4
};
enum StreamFlag : unsigned { kStreamDefault = 0, kStreamNonBlocking = 1 };
enum WaitEventFlag : unsigned { kWaitEventExternal = 1 };
enum WaitValueFlag : unsigned { kWaitGeq = 0, kWaitEq = 1, kWaitAnd = 2, kWaitNor = 3 };
enum CaptureMode : int { kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2 };
enum CaptureStatus : int { kCaptureNone = 0, kCaptureActive = 1, kCaptureInvalidated = 2 };
enum MemoryType : int { kMemoryHost = 1, kMemoryDevice = 2, kMemoryArray = 3, kMemoryUnified = 4 };
enum AttachFlag : unsigned { kAttachGlobal = 1, kAttachHost = 2 };
enum AllocationType : int { kAllocationPinned = 1 };
enum LocationType : int { kLocationDevice = 1 };
enum AccessFlag : int { kAccessReadWrite = 3 };
enum Granularity : int { kGranularityMinimum = 0 };
enum IpcFlag : unsigned { kIpcLazyPeerAccess = 1 };
enum Limit : int { kLimitStack = 0, kLimitPrintf = 1, kLimitHeap = 2 };

enum PointerAttribute : int {
  kPointerContext = 1,
  kPointerMemoryType = 2,
  kPointerDevicePointer = 3,
  kPointerHostPointer = 4,
  kPointerP2pTokens = 5,
  kPointerSyncMemops = 6,
  kPointerBufferId = 7,
  kPointerIsManaged = 8,
  kPointerDeviceOrdinal = 9,
  kPointerIsLegacyIpcCapable = 10,
  kPointerRangeStart = 11,
  kPointerRangeSize = 12,
  kPointerMapped = 13,
  kPointerAllowedHandleTypes = 14,
  kPointerIsGpuDirectCapable = 15,
  kPointerAccessFlags = 16,
  kPointerMempoolHandle = 17,
};

enum FunctionAttribute : int {
  kFunctionMaxThreads = 0,
  kFunctionSharedBytes = 1,
  kFunctionConstBytes = 2,
  kFunctionLocalBytes = 3,
  kFunctionRegisters = 4,
  kFunctionPtxVersion = 5,
  kFunctionBinaryVersion = 6,
  kFunctionCacheModeCa = 7,
  kFunctionMaxDynamicShared = 8,
  kFunctionCarveout = 9,
};

// CU_LAUNCH_PARAM_END is 0 where HIP's is 3.
inline void* launch_parameter(unsigned long number) {
  return reinterpret_cast<void*>(number);
}
enum LaunchParameter : unsigned long { kLaunchEnd = 0, kLaunchBuffer = 1, kLaunchBufferSize = 2 };

}  // namespace forward::cuda
