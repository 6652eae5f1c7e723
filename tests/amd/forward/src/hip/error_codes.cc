// Error codes: the map from NVIDIA's numbers, and HIP's names and texts.
#include <algorithm>
#include <cstdio>

#include "hip/call.h"

namespace forward {
namespace {

struct Code {
  int cuda;
  hipError_t hip;
  const char* name;
  const char* text;
};

constexpr Code kCodes[] = {
    {0, hipSuccess, "hipSuccess", "no error"},
    {1, hipErrorInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {2, hipErrorOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {3, hipErrorNotInitialized, "hipErrorNotInitialized", "initialization error"},
    {4, hipErrorDeinitialized, "hipErrorDeinitialized", "driver shutting down"},
    {5, hipErrorProfilerDisabled, "hipErrorProfilerDisabled",
     "profiler disabled while using external profiling tool"},
    {6, hipErrorProfilerNotInitialized, "hipErrorProfilerNotInitialized",
     "profiler is not initialized"},
    {7, hipErrorProfilerAlreadyStarted, "hipErrorProfilerAlreadyStarted",
     "profiler already started"},
    {8, hipErrorProfilerAlreadyStopped, "hipErrorProfilerAlreadyStopped",
     "profiler already stopped"},
    {100, hipErrorNoDevice, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {101, hipErrorInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {200, hipErrorInvalidImage, "hipErrorInvalidImage", "device kernel image is invalid"},
    {201, hipErrorInvalidContext, "hipErrorInvalidContext", "invalid device context"},
    {202, hipErrorContextAlreadyCurrent, "hipErrorContextAlreadyCurrent",
     "context is already current context"},
    {205, hipErrorMapFailed, "hipErrorMapFailed", "mapping of buffer object failed"},
    {206, hipErrorUnmapFailed, "hipErrorUnmapFailed", "unmapping of buffer object failed"},
    {207, hipErrorArrayIsMapped, "hipErrorArrayIsMapped", "array is mapped"},
    {208, hipErrorAlreadyMapped, "hipErrorAlreadyMapped", "resource already mapped"},
    {209, hipErrorNoBinaryForGpu, "hipErrorNoBinaryForGpu",
     "no kernel image is available for execution on the device"},
    {210, hipErrorAlreadyAcquired, "hipErrorAlreadyAcquired", "resource already acquired"},
    {211, hipErrorNotMapped, "hipErrorNotMapped", "resource not mapped"},
    {212, hipErrorNotMappedAsArray, "hipErrorNotMappedAsArray", "resource not mapped as array"},
    {213, hipErrorNotMappedAsPointer, "hipErrorNotMappedAsPointer",
     "resource not mapped as pointer"},
    {214, hipErrorECCNotCorrectable, "hipErrorECCNotCorrectable",
     "uncorrectable ECC error encountered"},
    {215, hipErrorUnsupportedLimit, "hipErrorUnsupportedLimit",
     "limit is not supported on this architecture"},
    {216, hipErrorContextAlreadyInUse, "hipErrorContextAlreadyInUse",
     "exclusive-thread device already in use by a different thread"},
    {217, hipErrorPeerAccessUnsupported, "hipErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {218, hipErrorInvalidKernelFile, "hipErrorInvalidKernelFile", "invalid kernel file"},
    {219, hipErrorInvalidGraphicsContext, "hipErrorInvalidGraphicsContext",
     "invalid OpenGL or DirectX context"},
    {300, hipErrorInvalidSource, "hipErrorInvalidSource", "device kernel image is invalid"},
    {301, hipErrorFileNotFound, "hipErrorFileNotFound", "file not found"},
    {302, hipErrorSharedObjectSymbolNotFound, "hipErrorSharedObjectSymbolNotFound",
     "shared object symbol not found"},
    {303, hipErrorSharedObjectInitFailed, "hipErrorSharedObjectInitFailed",
     "shared object initialization failed"},
    {304, hipErrorOperatingSystem, "hipErrorOperatingSystem",
     "OS call failed or operation not supported on this OS"},
    {400, hipErrorInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {401, hipErrorIllegalState, "hipErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {500, hipErrorNotFound, "hipErrorNotFound", "named symbol not found"},
    {600, hipErrorNotReady, "hipErrorNotReady", "device not ready"},
    {700, hipErrorIllegalAddress, "hipErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {701, hipErrorLaunchOutOfResources, "hipErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {702, hipErrorLaunchTimeOut, "hipErrorLaunchTimeOut",
     "the launch timed out and was terminated"},
    {704, hipErrorPeerAccessAlreadyEnabled, "hipErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {705, hipErrorPeerAccessNotEnabled, "hipErrorPeerAccessNotEnabled",
     "peer access has not been enabled"},
    {708, hipErrorSetOnActiveProcess, "hipErrorSetOnActiveProcess",
     "cannot set while device is active in this process"},
    {709, hipErrorContextIsDestroyed, "hipErrorContextIsDestroyed", "context is destroyed"},
    {710, hipErrorAssert, "hipErrorAssert", "device-side assert triggered"},
    {712, hipErrorHostMemoryAlreadyRegistered, "hipErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {713, hipErrorHostMemoryNotRegistered, "hipErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {719, hipErrorLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
    {720, hipErrorCooperativeLaunchTooLarge, "hipErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {801, hipErrorNotSupported, "hipErrorNotSupported", "operation not supported"},
    {900, hipErrorStreamCaptureUnsupported, "hipErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {901, hipErrorStreamCaptureInvalidated, "hipErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {902, hipErrorStreamCaptureMerge, "hipErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {903, hipErrorStreamCaptureUnmatched, "hipErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {904, hipErrorStreamCaptureUnjoined, "hipErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {905, hipErrorStreamCaptureIsolation, "hipErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {906, hipErrorStreamCaptureImplicit, "hipErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, hipErrorCapturedEvent, "hipErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {908, hipErrorStreamCaptureWrongThread, "hipErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {910, hipErrorGraphExecUpdateFailure, "hipErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints "
     "specific to instantiated graph update"},
    {999, hipErrorUnknown, "hipErrorUnknown", "unknown error"},
};

// The texts are those of AMD's library 6.4.3.
static_assert(std::ranges::all_of(kCodes, [](const Code& code) { return code.cuda == code.hip; }),
              "the codes that both vendors have carry one number");

// Codes that HIP defines and the driver API never returns. AMD's library has no
// names for hipErrorInvalidChannelDescriptor and hipErrorInvalidTexture.
constexpr int kNever = -1;
constexpr Code kHipOnly[] = {
    {kNever, hipErrorInvalidConfiguration, "hipErrorInvalidConfiguration",
     "invalid configuration argument"},
    {kNever, hipErrorInvalidPitchValue, "hipErrorInvalidPitchValue", "invalid pitch argument"},
    {kNever, hipErrorInvalidSymbol, "hipErrorInvalidSymbol", "invalid device symbol"},
    {kNever, hipErrorInvalidDevicePointer, "hipErrorInvalidDevicePointer",
     "invalid device pointer"},
    {kNever, hipErrorInvalidMemcpyDirection, "hipErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {kNever, hipErrorInsufficientDriver, "hipErrorInsufficientDriver",
     "driver version is insufficient for runtime version"},
    {kNever, hipErrorMissingConfiguration, "hipErrorMissingConfiguration",
     "__global__ function call is not configured"},
    {kNever, hipErrorPriorLaunchFailure, "hipErrorPriorLaunchFailure",
     "unspecified launch failure in prior launch"},
    {kNever, hipErrorInvalidDeviceFunction, "hipErrorInvalidDeviceFunction",
     "invalid device function"},

    {kNever, hipErrorRuntimeMemory, "hipErrorRuntimeMemory", "runtime memory call returned error"},
    {kNever, hipErrorRuntimeOther, "hipErrorRuntimeOther",
     "runtime call other than memory returned error"},
    {kNever, hipErrorTbd, "hipErrorTbd", "unknown error"},
};

const Code* find_hip(hipError_t error) {
  for (const Code& code : kCodes) {
    if (code.hip == error) return &code;
  }
  for (const Code& code : kHipOnly) {
    if (code.hip == error) return &code;
  }
  return nullptr;
}

}  // namespace

hipError_t from_cuda(int cuda) {
  for (const Code& code : kCodes) {
    if (code.cuda == cuda) return code.hip;
  }
  char message[96];
  std::snprintf(message, sizeof message,
                "returned %d, which HIP lacks; the caller sees hipErrorUnknown", cuda);
  explain_once("NVIDIA's driver", message);
  return hipErrorUnknown;
}

}  // namespace forward

const char* hipGetErrorName(hipError_t hip_error) {
  const auto* code = forward::find_hip(hip_error);
  return code == nullptr ? "hipErrorUnknown" : code->name;
}

const char* hipGetErrorString(hipError_t hipError) {
  const auto* code = forward::find_hip(hipError);
  return code == nullptr ? "unknown error" : code->text;
}
