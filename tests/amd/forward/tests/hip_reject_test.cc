// Values that AMD's header does not define are rejected, and nothing reaches the driver.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "hip/exports.h"
#include "support.h"

namespace {

// Runs a call with an undefined value. Only context calls may reach the driver.
void check_rejected(const char* name, const std::function<hipError_t()>& call,
                    hipError_t expected = hipErrorInvalidValue) {
  (void)hipSetDevice(0);
  (void)test::cuda().take();
  const unsigned long before = forward_rejections();
  INFO(name);
  CHECK(call() == expected);
  CHECK(forward_rejections() == before + 1);
  std::string log = test::cuda().take();
  for (const char* allowed : {"cuCtxGetCurrent\n", "cuDeviceGetCount\n"}) {
    for (std::size_t at = log.find(allowed); at != std::string::npos; at = log.find(allowed)) {
      log.erase(at, std::string(allowed).size());
    }
  }
  CHECK(log.empty());
  CHECK(hipGetLastError() == expected);
}

template <typename Enum>
Enum undefined(int value) {
  return static_cast<Enum>(value);
}

}  // namespace

TEST_CASE("undefined device attributes") {
  int value = 0;
  for (const int number : {64, 86, 92, 9999, 10001, 10018, 20000, -1}) {
    check_rejected("hipDeviceGetAttribute", [&] {
      return hipDeviceGetAttribute(&value, undefined<hipDeviceAttribute_t>(number), 0);
    });
  }
}

TEST_CASE("undefined stream, event and wait flags") {
  hipStream_t stream = nullptr;
  hipEvent_t event = nullptr;
  int word = 0;
  check_rejected("stream", [&] { return hipStreamCreateWithFlags(&stream, 2); });
  check_rejected("event", [&] { return hipEventCreateWithFlags(&event, 8); });
  check_rejected("event", [&] { return hipEventCreateWithFlags(&event, 4); });
  check_rejected("event", [&] { return hipEventCreateWithFlags(&event, 0xc0000000); });
  check_rejected(
      "wait", [&] { return hipStreamWaitEvent(nullptr, reinterpret_cast<hipEvent_t>(&word), 2); });
  // CU_STREAM_WAIT_VALUE_FLUSH and CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER are NVIDIA's only.
  check_rejected("flush", [&] { return hipStreamWaitValue32(nullptr, &word, 0, 1U << 30); });
  check_rejected("flags 4", [&] { return hipStreamWaitValue64(nullptr, &word, 0, 4); });
  check_rejected("barrier", [&] { return hipStreamWriteValue32(nullptr, &word, 0, 1); });
  check_rejected("barrier", [&] { return hipStreamWriteValue64(nullptr, &word, 0, 1); });
}

TEST_CASE("undefined memory flags and kinds") {
  void* pointer = nullptr;
  int word = 0;
  check_rejected("host", [&] { return hipHostMalloc(&pointer, 8, 8); });
  check_rejected("host", [&] { return hipHostMalloc(&pointer, 8, 0xc0000000); });
  check_rejected("host", [&] { return hipHostAlloc(&pointer, 8, 0x10); });
  check_rejected("register", [&] { return hipHostRegister(&word, 4, 0x10); });
  check_rejected("extended", [&] { return hipExtMallocWithFlags(&pointer, 8, 5); });
  check_rejected("managed", [&] { return hipMallocManaged(&pointer, 8, 4); });
  check_rejected("device pointer", [&] { return hipHostGetDevicePointer(&pointer, &word, 1); });
  check_rejected("copy", [&] { return hipMemcpy(&word, &word, 4, undefined<hipMemcpyKind>(5)); });
  check_rejected("copy", [&] {
    return hipMemcpyAsync(&word, &word, 4, undefined<hipMemcpyKind>(-1), nullptr);
  });
  check_rejected("pointer", [&] {
    return hipPointerGetAttribute(&word, undefined<hipPointer_attribute>(18), &word);
  });
  check_rejected("ipc", [&] { return hipIpcOpenMemHandle(&pointer, hipIpcMemHandle_t{}, 2); });
  check_rejected("peer", [&] { return hipDeviceEnablePeerAccess(1, 1); });
  check_rejected("init", [&] { return hipInit(1); });
}

TEST_CASE("undefined modes, limits, function attributes and launch flags") {
  hipStreamCaptureMode mode = undefined<hipStreamCaptureMode>(3);
  check_rejected("exchange", [&] { return hipThreadExchangeStreamCaptureMode(&mode); });
  check_rejected("begin", [&] { return hipStreamBeginCapture(nullptr, mode); });
  check_rejected(
      "limit", [&] { return hipDeviceSetLimit(undefined<hipLimit_t>(5), 1); },
      hipErrorUnsupportedLimit);
  check_rejected("function",
                 [&] { return hipFuncSetAttribute(&mode, undefined<hipFuncAttribute>(10), 1); });
  check_rejected("launch", [&] {
    return hipExtLaunchKernel(&mode, dim3(1), dim3(1), nullptr, 0, nullptr, nullptr, nullptr, 2);
  });
  void* extra[] = {reinterpret_cast<void*>(7), nullptr, nullptr};
  check_rejected("extra", [&] {
    return hipModuleLaunchKernel(reinterpret_cast<hipFunction_t>(&mode), 1, 1, 1, 1, 1, 1, 0,
                                 nullptr, nullptr, extra);
  });
}
