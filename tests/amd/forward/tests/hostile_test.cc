// Each hostile mode does what its name says. A run sets FORWARD_HOSTILE and names one test case.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "hip/exports.h"
#include "support.h"

namespace {

hipStream_t new_stream() {
  hipStream_t stream = nullptr;
  REQUIRE(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) == hipSuccess);
  return stream;
}

int attribute(hipDeviceAttribute_t which) {
  int value = -1;
  CHECK(hipDeviceGetAttribute(&value, which, 0) == hipSuccess);
  return value;
}

void call_hip(void*) {
  int device = 0;
  (void)hipGetDevice(&device);
}

}  // namespace

TEST_CASE("no-wait-value" * doctest::skip()) {
  int word = 0;
  (void)test::cuda().take();
  CHECK(hipStreamWaitValue32(nullptr, &word, 1, hipStreamWaitValueEq) == hipErrorNotSupported);
  CHECK(hipStreamWaitValue64(nullptr, &word, 1, hipStreamWaitValueEq) == hipErrorNotSupported);
  CHECK(hipStreamWriteValue32(nullptr, &word, 1, 0) == hipErrorNotSupported);
  CHECK(hipStreamWriteValue64(nullptr, &word, 1, 0) == hipErrorNotSupported);
  CHECK(test::cuda().take().find("Value") == std::string::npos);
  CHECK(attribute(hipDeviceAttributeCanUseStreamWaitValue) == 0);
}

TEST_CASE("hollow-wait-value" * doctest::skip()) {
  int word = 0;
  (void)test::cuda().take();
  CHECK(hipStreamWaitValue32(nullptr, &word, 1, hipStreamWaitValueGte) == hipSuccess);
  CHECK(hipStreamWaitValue64(nullptr, &word, 1, hipStreamWaitValueGte) == hipSuccess);
  CHECK(test::cuda().take().find("WaitValue") == std::string::npos);
  CHECK(hipStreamWaitValue32(nullptr, nullptr, 1, 0) == hipErrorInvalidValue);
}

TEST_CASE("wait-value-signal-only" * doctest::skip()) {
  void* device = nullptr;
  void* signal = nullptr;
  REQUIRE(hipMalloc(&device, 64) == hipSuccess);
  REQUIRE(hipExtMallocWithFlags(&signal, 8, hipMallocSignalMemory) == hipSuccess);
  CHECK(hipStreamWaitValue32(nullptr, device, 1, 0) == hipErrorInvalidValue);
  CHECK(hipStreamWaitValue32(nullptr, signal, 1, 0) == hipSuccess);
  CHECK(hipStreamWaitValue32(nullptr, static_cast<char*>(signal) + 4, 1, 0) == hipSuccess);
  CHECK(hipStreamWaitValue32(nullptr, static_cast<char*>(signal) + 8, 1, 0) ==
        hipErrorInvalidValue);
  CHECK(hipStreamWriteValue32(nullptr, device, 1, 0) == hipSuccess);
  CHECK(hipFree(signal) == hipSuccess);
  CHECK(hipStreamWaitValue32(nullptr, signal, 1, 0) == hipErrorInvalidValue);
}

TEST_CASE("blocking-host-functions" * doctest::skip()) {
  const int status =
      test::run_in_child([] { (void)hipLaunchHostFunc(nullptr, call_hip, nullptr); });
  CHECK(status == 128 + SIGABRT);
  const int harmless = test::run_in_child([] {
    const hipError_t error = hipLaunchHostFunc(nullptr, [](void*) {}, nullptr);
    if (error != hipSuccess) std::_Exit(3);
  });
  CHECK(harmless == 0);
}

TEST_CASE("slow-enqueue" * doctest::skip()) {
  int word = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) CHECK(hipMemsetAsync(&word, 0, 4, nullptr) == hipSuccess);
  const auto enqueued = std::chrono::steady_clock::now();
  CHECK(enqueued - start >= std::chrono::milliseconds(50));
  // Two threads wait for one lock, so their pauses add up.
  const auto enqueue = [&word] {
    for (int i = 0; i < 5; ++i) (void)hipMemsetAsync(&word, 0, 4, nullptr);
  };
  std::thread other(enqueue);
  enqueue();
  other.join();
  CHECK(std::chrono::steady_clock::now() - enqueued >= std::chrono::milliseconds(100));
  // A question adds no work and does not pause. The pause is 10 ms.
  const auto asked = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) CHECK(hipStreamQuery(nullptr) == hipSuccess);
  CHECK(std::chrono::steady_clock::now() - asked < std::chrono::milliseconds(150));
}

TEST_CASE("fnuz" * doctest::skip()) {
  hipDeviceProp_t properties;
  REQUIRE(hipGetDeviceProperties(&properties, 0) == hipSuccess);
  CHECK(std::string(properties.gcnArchName) == "gfx942");
  CHECK(properties.warpSize == 64);
}

TEST_CASE("one-queue" * doctest::skip()) {
  (void)test::cuda().take();
  const hipStream_t first = new_stream();
  const hipStream_t second = new_stream();
  CHECK(first != second);
  CHECK(forward_cuda_stream(first) == forward_cuda_stream(second));
  CHECK(forward_cuda_stream(nullptr) == forward_cuda_stream(second));
  const std::string log = test::cuda().take();
  CHECK(log.find("cuStreamCreate") == log.rfind("cuStreamCreate"));
  const std::string queue =
      std::to_string(reinterpret_cast<std::uintptr_t>(forward_cuda_stream(first)));
  CHECK(hipStreamSynchronize(second) == hipSuccess);
  CHECK(test::cuda().last() == "cuStreamSynchronize " + queue);
  CHECK(hipStreamDestroy(first) == hipSuccess);
  CHECK(test::cuda().take().find("cuStreamDestroy") == std::string::npos);
  CHECK(hipStreamDestroy(first) == hipErrorInvalidHandle);
  CHECK(hipStreamQuery(second) == hipSuccess);
}

TEST_CASE("no mode" * doctest::skip()) {
  // Other architectures and an unmodified stream map need no mode.
  CHECK(attribute(hipDeviceAttributeWarpSize) == 32);
  CHECK(attribute(hipDeviceAttributeComputeCapabilityMajor) == 11);
  hipDeviceProp_t properties;
  REQUIRE(hipGetDeviceProperties(&properties, 0) == hipSuccess);
  CHECK(std::string(properties.gcnArchName) == "gfx1100");
  CHECK(forward_cuda_stream(new_stream()) != forward_cuda_stream(new_stream()));
}
