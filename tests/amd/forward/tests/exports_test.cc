// The three libraries load with every symbol bound, and export what the table below names.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "support.h"

namespace {

constexpr const char* kHip[] = {
    // HIP's counterparts of the paper's unified function table (figure 10).
    "hipThreadExchangeStreamCaptureMode", "hipMalloc", "hipMallocHost", "hipMallocManaged",
    "hipHostAlloc", "hipGetDevice", "hipSetDevice", "hipGetErrorString", "hipGetLastError",
    "hipExtMallocWithFlags", "hipDeviceCanAccessPeer", "hipFreeHost", "hipDeviceGetAttribute",
    "hipStreamCreateWithFlags", "hipMemcpy", "hipMemcpyAsync", "hipFree", "hipMemset",
    "hipMemsetAsync", "hipStreamQuery", "hipStreamSynchronize", "hipStreamDestroy",
    "hipEventCreate", "hipEventCreateWithFlags", "hipEventQuery", "hipEventRecord",
    "hipStreamWaitEvent", "hipEventDestroy", "hipLaunchHostFunc", "hipIpcOpenMemHandle",
    "hipIpcCloseMemHandle", "hipIpcGetMemHandle", "hipHostRegister", "hipHostUnregister",
    "hipHostGetDevicePointer", "hipDeviceGetPCIBusId", "hipGetDevicePropertiesR0600",
    "hipDeviceGetByPCIBusId", "hipDeviceEnablePeerAccess", "hipGetDeviceCount",
    "hipFuncSetAttribute", "hipFuncGetAttributes", "hipExtLaunchKernel", "hipLaunchKernel",
    "hipDeviceSetLimit", "hipStreamGetCaptureInfo_v2", "hipGraphAddHostNode", "hipGraphInstantiate",
    "hipGraphLaunch", "hipGraphExecDestroy", "hipGraphDestroy", "hipDeviceSynchronize",
    "hipStreamBeginCapture", "hipStreamEndCapture", "hipDeviceReset", "hipPointerGetAttributes",
    "hipExtStreamCreateWithCUMask", "hipStreamCreate", "hipExtGetLinkTypeAndHopCount",
    "hipHostMalloc", "hipHostFree", "hipEventElapsedTime",
    // Further functions that programs use.
    "hipInit", "hipDriverGetVersion", "hipRuntimeGetVersion", "hipGetErrorName",
    "hipPeekAtLastError", "hipExtGetLastError", "hipDeviceGet", "hipDeviceGetName",
    "hipDeviceGetUuid", "hipDeviceTotalMem", "hipDevicePrimaryCtxRetain",
    "hipDevicePrimaryCtxRelease", "hipCtxGetCurrent", "hipCtxSetCurrent", "hipCtxGetDevice",
    "hipHostGetFlags", "hipPointerGetAttribute", "hipMemGetAddressRange", "hipMemGetInfo",
    "hipIpcGetEventHandle", "hipIpcOpenEventHandle", "hipStreamCreateWithPriority",
    "hipDeviceGetStreamPriorityRange", "hipStreamIsCapturing", "hipStreamGetCaptureInfo",
    "hipStreamWaitValue32", "hipStreamWaitValue64", "hipStreamWriteValue32",
    "hipStreamWriteValue64", "hipEventSynchronize", "hipModuleLoadData", "hipModuleUnload",
    "hipModuleGetFunction", "hipModuleLaunchKernel"};

constexpr const char* kHiprtc[] = {
    "hiprtcGetErrorString",    "hiprtcVersion",        "hiprtcCreateProgram",
    "hiprtcDestroyProgram",    "hiprtcCompileProgram", "hiprtcGetProgramLogSize",
    "hiprtcGetProgramLog",     "hiprtcGetCodeSize",    "hiprtcGetCode",
    "hiprtcAddNameExpression", "hiprtcGetLoweredName"};

constexpr const char* kRccl[] = {"ncclGetUniqueId",
                                 "ncclGetVersion",
                                 "ncclCommInitRank",
                                 "ncclCommFinalize",
                                 "ncclCommDestroy",
                                 "ncclCommAbort",
                                 "ncclCommGetAsyncError",
                                 "ncclCommCount",
                                 "ncclCommCuDevice",
                                 "ncclCommUserRank",
                                 "ncclGetErrorString",
                                 "ncclGetLastError",
                                 "ncclGroupStart",
                                 "ncclGroupEnd",
                                 "ncclAllReduce",
                                 "ncclBroadcast",
                                 "ncclBcast",
                                 "ncclReduce",
                                 "ncclAllGather",
                                 "ncclReduceScatter",
                                 "ncclSend",
                                 "ncclRecv",
                                 "ncclAllToAll",
                                 "ncclAllToAllv",
                                 "ncclRedOpCreatePreMulSum",
                                 "ncclRedOpDestroy"};

constexpr const char* kSplitRegister[] = {"ncclCommSplit", "ncclCommInitRankConfig",
                                          "ncclCommRegister", "ncclCommDeregister"};

void* open_library(const std::string& file) {
  void* handle =
      dlopen((std::string(FORWARD_LIBRARIES) + "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
  INFO(file, ": ", handle == nullptr ? dlerror() : "");
  REQUIRE(handle != nullptr);
  return handle;
}

template <std::size_t N>
void check_all(const char* file, const char* const (&names)[N], bool present) {
  void* handle = open_library(file);
  for (const char* name : names) {
    INFO(file, " ", name);
    CHECK((dlsym(handle, name) != nullptr) == present);
  }
}

}  // namespace

TEST_CASE("libamdhip64.so.6 exports its functions") {
  check_all("libamdhip64.so.6", kHip, true);
}

TEST_CASE("libhiprtc.so.6 exports its functions") {
  check_all("libhiprtc.so.6", kHiprtc, true);
}

TEST_CASE("librccl.so.1 exports its functions") {
  check_all("librccl.so.1", kRccl, true);
  check_all("librccl.so.1", kSplitRegister, true);
}

TEST_CASE("the second librccl.so.1 lacks split and registration") {
  check_all("no-split-register/librccl.so.1", kRccl, true);
  check_all("no-split-register/librccl.so.1", kSplitRegister, false);
}
