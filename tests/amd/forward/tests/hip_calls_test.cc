// HIP's implicit device, its memory of errors, and the remaining calls.
#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "hip/hip.h"
#include "support.h"

namespace {

void count(void* data) {
  ++*static_cast<int*>(data);
}

}  // namespace

TEST_CASE("each thread has its own device, and a call makes its primary context current") {
  REQUIRE(hipSetDevice(1) == hipSuccess);
  int device = -1;
  CHECK(hipGetDevice(&device) == hipSuccess);
  CHECK(device == 1);
  std::thread([] {
    int other = -1;
    CHECK(hipGetDevice(&other) == hipSuccess);
    CHECK(other == 0);
    void* pointer = nullptr;
    (void)test::cuda().take();
    CHECK(hipMalloc(&pointer, 32) == hipSuccess);
    const std::string log = test::cuda().take();
    CHECK(log.find("cuCtxSetCurrent 192\ncuMemAlloc_v2 32") != std::string::npos);
  }).join();
  hipCtx_t context = nullptr;
  CHECK(hipCtxGetCurrent(&context) == hipSuccess);
  CHECK(reinterpret_cast<std::uintptr_t>(context) == 0xc1);
  CHECK(hipCtxSetCurrent(reinterpret_cast<hipCtx_t>(0xc0)) == hipSuccess);
  CHECK(hipCtxGetDevice(&device) == hipSuccess);
  CHECK(device == 0);
  CHECK(hipSetDevice(2) == hipErrorInvalidDevice);
  CHECK(hipSetDevice(-1) == hipErrorInvalidDevice);
}

TEST_CASE("a reset device gets its context again") {
  REQUIRE(hipSetDevice(0) == hipSuccess);
  (void)test::cuda().take();
  CHECK(hipDeviceReset() == hipSuccess);
  CHECK(hipDeviceSynchronize() == hipSuccess);
  CHECK(test::cuda().take().find("cuDevicePrimaryCtxReset_v2 0\ncuDeviceGetCount\n"
                                 "cuDevicePrimaryCtxRetain 0") != std::string::npos);
}

TEST_CASE("errors are remembered until hipGetLastError reads them; not-ready is not remembered") {
  (void)hipGetLastError();
  CHECK(hipSetDevice(9) == hipErrorInvalidDevice);
  CHECK(hipSetDevice(0) == hipSuccess);
  CHECK(hipPeekAtLastError() == hipErrorInvalidDevice);
  CHECK(hipGetLastError() == hipErrorInvalidDevice);
  CHECK(hipGetLastError() == hipSuccess);
  test::cuda().set("cuStreamQuery", 600);
  CHECK(hipStreamQuery(nullptr) == hipErrorNotReady);
  test::cuda().set("cuStreamQuery", 0);
  CHECK(hipGetLastError() == hipSuccess);
}

TEST_CASE("a host function runs once and a refused one is discarded") {
  int runs = 0;
  CHECK(hipLaunchHostFunc(nullptr, count, &runs) == hipSuccess);
  CHECK(runs == 1);
  test::cuda().set("cuLaunchHostFunc", 801);
  CHECK(hipLaunchHostFunc(nullptr, count, &runs) == hipErrorNotSupported);
  test::cuda().set("cuLaunchHostFunc", 0);
  CHECK(runs == 1);
  hipHostNodeParams parameters{count, &runs};
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddHostNode(&node, nullptr, nullptr, 0, &parameters) == hipSuccess);
  CHECK(runs == 2);
}

TEST_CASE("versions are HIP's") {
  int version = 0;
  CHECK(hipRuntimeGetVersion(&version) == hipSuccess);
  CHECK(version == HIP_VERSION);
  CHECK(hipDriverGetVersion(&version) == hipSuccess);
  CHECK(version == HIP_VERSION);
}

TEST_CASE("devices are found by PCI bus identifier") {
  char id[32] = "";
  CHECK(hipDeviceGetPCIBusId(id, sizeof id, 1) == hipSuccess);
  int device = -1;
  CHECK(hipDeviceGetByPCIBusId(&device, id) == hipSuccess);
  CHECK(device == 1);
  char name[256] = "";
  CHECK(hipDeviceGetName(name, sizeof name, 1) == hipSuccess);
  CHECK(std::string(name).find("forwarded to NVIDIA") != std::string::npos);
  uint32_t type = 0;
  uint32_t hops = 0;
  CHECK(hipExtGetLinkTypeAndHopCount(0, 1, &type, &hops) == hipSuccess);
  CHECK(hipExtGetLinkTypeAndHopCount(0, 0, &type, &hops) == hipErrorInvalidValue);
}

TEST_CASE("streams keep their numbers: null, legacy and per-thread") {
  CHECK(hipStreamSynchronize(nullptr) == hipSuccess);
  CHECK(test::cuda().last() == "cuStreamSynchronize 0");
  CHECK(hipStreamSynchronize(hipStreamLegacy) == hipSuccess);
  CHECK(test::cuda().last() == "cuStreamSynchronize 1");
  CHECK(hipStreamSynchronize(hipStreamPerThread) == hipSuccess);
  CHECK(test::cuda().last() == "cuStreamSynchronize 2");
  CHECK(hipStreamDestroy(nullptr) == hipErrorInvalidHandle);
}

TEST_CASE("graphs and capture information") {
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  unsigned long long id = 0;
  hipGraph_t graph = nullptr;
  size_t dependencies = 0;
  test::cuda().set("capture status", 1);
  CHECK(hipStreamGetCaptureInfo_v2(nullptr, &status, &id, &graph, nullptr, &dependencies) ==
        hipSuccess);
  test::cuda().set("capture status", 0);
  CHECK(status == hipStreamCaptureStatusActive);
  CHECK(id == 77);
  CHECK(dependencies == 3);
  hipGraphExec_t executable = nullptr;
  CHECK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0) == hipSuccess);
  CHECK(hipGraphLaunch(executable, nullptr) == hipSuccess);
  CHECK(test::cuda().last() == "cuGraphLaunch 99 0");
}

TEST_CASE("kernels launch by handle, and an unknown address is no kernel") {
  int word = 0;
  CHECK(hipLaunchKernel(&word, dim3(1), dim3(1), nullptr, 0, nullptr) ==
        hipErrorInvalidDeviceFunction);
  hipFunction_t function = nullptr;
  REQUIRE(hipModuleGetFunction(&function, nullptr, "kernel") == hipSuccess);
  CHECK(hipLaunchKernel(function, dim3(2), dim3(3), nullptr, 4, nullptr) == hipSuccess);
  CHECK(test::cuda().last() == "cuLaunchKernel 240 2 1 1 3 1 1 4 0 0 0 0");
  hipFuncAttributes attributes;
  CHECK(hipFuncGetAttributes(&attributes, function) == hipSuccess);
  CHECK(attributes.numRegs == 2004);
  CHECK(attributes.maxThreadsPerBlock == 2000);
}
