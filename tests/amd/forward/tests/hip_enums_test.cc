// Each of HIP's enumerators arrives at the driver as NVIDIA's number.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "hip/hip.h"
#include "support.h"

namespace {

std::string value_call(const char* name, hipStream_t stream, const void* at, unsigned value,
                       unsigned flags) {
  return std::string(name) + " " + std::to_string(reinterpret_cast<std::uintptr_t>(stream)) + " " +
         std::to_string(reinterpret_cast<std::uintptr_t>(at)) + " " + std::to_string(value) + " " +
         std::to_string(flags);
}

int attribute(hipDeviceAttribute_t which) {
  int value = -1;
  CHECK(hipDeviceGetAttribute(&value, which, 0) == hipSuccess);
  return value;
}

hipStream_t stream_of(unsigned flags) {
  hipStream_t stream = nullptr;
  REQUIRE(hipStreamCreateWithFlags(&stream, flags) == hipSuccess);
  return stream;
}

}  // namespace

TEST_CASE("device attributes arrive as NVIDIA's numbers") {
  // The stub answers 1000 plus the number that it got.
  CHECK(attribute(hipDeviceAttributeMultiprocessorCount) == 1016);
  CHECK(attribute(hipDeviceAttributePciBusId) == 1033);
  CHECK(attribute(hipDeviceAttributePciDeviceId) == 1034);
  CHECK(attribute(hipDeviceAttributePciDomainID) == 1050);
  CHECK(attribute(hipDeviceAttributeMaxThreadsPerBlock) == 1001);
  CHECK(attribute(hipDeviceAttributeMaxBlockDimZ) == 1004);
  CHECK(attribute(hipDeviceAttributeMaxGridDimX) == 1005);
  CHECK(attribute(hipDeviceAttributeMaxSharedMemoryPerBlock) == 1008);
  CHECK(attribute(hipDeviceAttributeIntegrated) == 1018);
  CHECK(attribute(hipDeviceAttributeManagedMemory) == 1083);
  CHECK(attribute(hipDeviceAttributeUnifiedAddressing) == 1041);
  CHECK(attribute(hipDeviceAttributeHostRegisterSupported) == 1099);
  CHECK(attribute(hipDeviceAttributeCanUseStreamWaitValue) == 1122);
  CHECK(test::cuda().last() == "cuDeviceGetAttribute 122 0");
}

TEST_CASE("the warp size and the compute capability are those of the AMD architecture") {
  CHECK(attribute(hipDeviceAttributeWarpSize) == 64);
  CHECK(attribute(hipDeviceAttributeComputeCapabilityMajor) == 9);
  CHECK(attribute(hipDeviceAttributeComputeCapabilityMinor) == 4);
  hipDeviceProp_t properties;
  REQUIRE(hipGetDeviceProperties(&properties, 1) == hipSuccess);
  CHECK(properties.warpSize == 64);
  CHECK(std::string(properties.gcnArchName) == "gfx942");
  CHECK(std::string(properties.name).find("forwarded to NVIDIA") != std::string::npos);
  CHECK(properties.multiProcessorCount == 1016);
  CHECK(properties.pciBusID == 1033);
  CHECK(properties.totalGlobalMem == std::size_t{80} << 30);
}

TEST_CASE("stream and event flags arrive as NVIDIA's numbers") {
  (void)test::cuda().take();
  (void)stream_of(hipStreamNonBlocking);
  CHECK(test::cuda().last() == "cuStreamCreateWithPriority 1 0");
  (void)stream_of(hipStreamDefault);
  CHECK(test::cuda().last() == "cuStreamCreateWithPriority 0 0");
  hipEvent_t event = nullptr;
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming | hipEventInterprocess) ==
        hipSuccess);
  CHECK(test::cuda().last() == "cuEventCreate 6");
  CHECK(hipEventCreateWithFlags(&event, hipEventBlockingSync | hipEventReleaseToSystem) ==
        hipSuccess);
  CHECK(test::cuda().last() == "cuEventCreate 1");
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming | hipEventDisableSystemFence) ==
        hipSuccess);
  CHECK(test::cuda().last() == "cuEventCreate 2");
  CHECK(hipStreamWaitEvent(nullptr, event, hipEventWaitExternal) == hipSuccess);
  CHECK(test::cuda().last().ends_with(" 1"));
}

TEST_CASE("host memory flags arrive as NVIDIA's numbers") {
  void* pointer = nullptr;
  CHECK(hipHostMalloc(&pointer, 64, hipHostMallocDefault) == hipSuccess);
  CHECK(test::cuda().last() == "cuMemHostAlloc 64 3");
  CHECK(hipHostMalloc(&pointer, 64, hipHostMallocCoherent | hipHostMallocWriteCombined) ==
        hipSuccess);
  CHECK(test::cuda().last() == "cuMemHostAlloc 64 7");
  unsigned flags = 0;
  CHECK(hipHostGetFlags(&flags, pointer) == hipSuccess);
  CHECK(flags == (hipHostMallocCoherent | hipHostMallocWriteCombined));
  int registered = 0;
  CHECK(hipHostRegister(&registered, 4, hipExtHostRegisterCoarseGrained) == hipSuccess);
  CHECK(test::cuda().last().ends_with(" 4 3"));
}

TEST_CASE("signal memory is pinned host memory of eight bytes") {
  void* pointer = nullptr;
  CHECK(hipExtMallocWithFlags(&pointer, 8, hipMallocSignalMemory) == hipSuccess);
  CHECK(test::cuda().last() == "cuMemHostAlloc 8 3");
  CHECK(hipFree(pointer) == hipSuccess);
  CHECK(test::cuda().last().starts_with("cuMemFreeHost"));
  CHECK(hipExtMallocWithFlags(&pointer, 16, hipMallocSignalMemory) == hipErrorInvalidValue);
  CHECK(hipExtMallocWithFlags(&pointer, 16, hipDeviceMallocUncached) == hipSuccess);
  CHECK(test::cuda().last() == "cuMemAlloc_v2 16");
}

TEST_CASE("waits and writes of values arrive with NVIDIA's flags") {
  void* at = nullptr;
  REQUIRE(hipMalloc(&at, 64) == hipSuccess);
  const hipStream_t stream = stream_of(hipStreamNonBlocking);
  for (unsigned flags = hipStreamWaitValueGte; flags <= hipStreamWaitValueNor; ++flags) {
    CHECK(hipStreamWaitValue32(stream, at, 5, flags) == hipSuccess);
    CHECK(test::cuda().last() == value_call("cuStreamWaitValue32_v2", stream, at, 5, flags));
  }
  CHECK(hipStreamWaitValue32(stream, at, 0xff, hipStreamWaitValueAnd, 0x0f) == hipSuccess);
  CHECK(test::cuda().last() == value_call("cuStreamWaitValue32_v2", stream, at, 0x0f, 2));
  (void)test::cuda().take();
  CHECK(hipStreamWaitValue32(stream, at, 5, hipStreamWaitValueEq, 0x0f) == hipErrorNotSupported);
  CHECK(hipStreamWaitValue64(stream, at, 5, hipStreamWaitValueGte, 0x0f) == hipErrorNotSupported);
  CHECK(test::cuda().take().find("WaitValue") == std::string::npos);
  CHECK(hipStreamWriteValue32(stream, at, 9, 0) == hipSuccess);
  CHECK(test::cuda().last() == value_call("cuStreamWriteValue32_v2", stream, at, 9, 0));
}

TEST_CASE("memory types come back as HIP's numbers") {
  const int driver_types[] = {1, 2, 3, 4};
  const hipMemoryType types[] = {hipMemoryTypeHost, hipMemoryTypeDevice, hipMemoryTypeArray,
                                 hipMemoryTypeUnified};
  hipPointerAttribute_t attributes;
  int place = 0;
  for (int i = 0; i < 4; ++i) {
    test::cuda().set("memory type", driver_types[i]);
    CHECK(hipPointerGetAttributes(&attributes, &place) == hipSuccess);
    CHECK(attributes.type == types[i]);
    unsigned type = 0;
    CHECK(hipPointerGetAttribute(&type, HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, &place) == hipSuccess);
    CHECK(type == types[i]);
  }
  CHECK(attributes.device == 1);
  test::cuda().set("managed", 1);
  CHECK(hipPointerGetAttributes(&attributes, &place) == hipSuccess);
  CHECK(attributes.type == hipMemoryTypeManaged);
  test::cuda().set("managed", 0);
  test::cuda().set("memory type", 0);
  CHECK(hipPointerGetAttributes(&attributes, &place) == hipErrorInvalidValue);
}

TEST_CASE("capture modes and states map in both directions") {
  const hipStreamCaptureStatus states[] = {hipStreamCaptureStatusNone, hipStreamCaptureStatusActive,
                                           hipStreamCaptureStatusInvalidated};
  for (int i = 0; i < 3; ++i) {
    test::cuda().set("capture status", i);
    hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
    CHECK(hipStreamIsCapturing(nullptr, &status) == hipSuccess);
    CHECK(status == states[i]);
  }
  test::cuda().set("capture status", 0);
  hipStreamCaptureMode mode = hipStreamCaptureModeThreadLocal;
  CHECK(hipThreadExchangeStreamCaptureMode(&mode) == hipSuccess);
  CHECK(test::cuda().last() == "cuThreadExchangeStreamCaptureMode 1");
  CHECK(mode == hipStreamCaptureModeRelaxed);
  CHECK(hipStreamBeginCapture(nullptr, hipStreamCaptureModeRelaxed) == hipSuccess);
  CHECK(test::cuda().last() == "cuStreamBeginCapture_v2 0 2");
}

TEST_CASE("error codes come back as HIP's") {
  struct Pair {
    int cuda;
    hipError_t hip;
  };
  const Pair pairs[] = {{1, hipErrorInvalidValue},
                        {2, hipErrorOutOfMemory},
                        {600, hipErrorNotReady},
                        {700, hipErrorIllegalAddress},
                        {709, hipErrorContextIsDestroyed},
                        {713, hipErrorHostMemoryNotRegistered},
                        {719, hipErrorLaunchFailure},
                        {801, hipErrorNotSupported},
                        {900, hipErrorStreamCaptureUnsupported},
                        {800, hipErrorUnknown},
                        {716, hipErrorUnknown}};
  for (const Pair& pair : pairs) {
    test::cuda().set("cuStreamQuery", pair.cuda);
    CHECK(hipStreamQuery(nullptr) == pair.hip);
  }
  test::cuda().set("cuStreamQuery", 0);
  CHECK(std::string(hipGetErrorName(hipErrorNotReady)) == "hipErrorNotReady");
}

TEST_CASE("the end of HIP's launch list becomes NVIDIA's") {
  hipModule_t module = nullptr;
  hipFunction_t function = nullptr;
  REQUIRE(hipModuleLoadData(&module, "image") == hipSuccess);
  REQUIRE(hipModuleGetFunction(&function, module, "kernel") == hipSuccess);
  char buffer[8] = {};
  std::size_t bytes = sizeof buffer;
  void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, buffer, HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   HIP_LAUNCH_PARAM_END};
  CHECK(hipModuleLaunchKernel(function, 1, 2, 3, 4, 5, 6, 7, nullptr, nullptr, extra) ==
        hipSuccess);
  CHECK(test::cuda().last() == "cuLaunchKernel 240 1 2 3 4 5 6 7 0 0 1 0");
}
