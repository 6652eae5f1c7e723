// Mode non-coherent, as the driver sees it. The stub computes nothing: noncoherent_gpu_test shows
// on a GPU what the kernels of the mode do.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "hip/exports.h"
#include "support.h"

namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;

template <typename... Numbers>
std::string call(const std::string& name, Numbers... numbers) {
  std::string line = name;
  ((line += " " + std::to_string(numbers)), ...);
  return line;
}

std::uint64_t number(const void* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

bool has(const std::string& log, const std::string& line) {
  return ("\n" + log).find("\n" + line) != std::string::npos;
}

// The calls that log names, without their arguments.
std::vector<std::string> names(const std::string& log) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < log.size(); at = log.find('\n', at) + 1) {
    found.push_back(log.substr(at, log.find_first_of(" \n", at) - at));
  }
  return found;
}

// An allocation of default flags, and the second address of its memory on the host.
struct Memory {
  explicit Memory(std::size_t bytes, unsigned flags = hipHostMallocDefault) {
    (void)test::cuda().take();
    REQUIRE(hipHostMalloc(&pointer, bytes, flags) == hipSuccess);
    log = test::cuda().take();
    const std::string name = "cuMemHostGetDevicePointer_v2 ";
    const std::size_t at = log.find(name);
    REQUIRE(at != std::string::npos);
    alias = reinterpret_cast<char*>(std::stoull(log.substr(at + name.size())));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { CHECK(hipHostFree(pointer) == hipSuccess); }

  [[nodiscard]] char* at(std::size_t offset) const { return static_cast<char*>(pointer) + offset; }

  void* pointer = nullptr;
  char* alias = nullptr;
  std::string log;
};

hipFunction_t kernel() {
  hipModule_t module = nullptr;
  hipFunction_t function = nullptr;
  REQUIRE(hipModuleLoadData(&module, "image") == hipSuccess);
  REQUIRE(hipModuleGetFunction(&function, module, "kernel") == hipSuccess);
  (void)test::cuda().take();
  return function;
}

// Calls that a launch on stream 2 enqueues, without those that find the context.
std::string launch_log(hipFunction_t function) {
  (void)test::cuda().take();
  CHECK(hipModuleLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, hipStreamPerThread, nullptr,
                              nullptr) == hipSuccess);
  const std::string log = test::cuda().take();
  return log.substr(log.find('\n') + 1);
}

constexpr char kKernel[] = "cuLaunchKernel 240 1 1 1 1 1 1 0 2 0 0 0\n";

}  // namespace

// The first test case of its run: it needs a process without an allocation.
TEST_CASE("non-coherent 1: only memory without hipHostMallocCoherent is non-coherent" *
          doctest::skip()) {
  const hipFunction_t function = kernel();
  for (const unsigned flags :
       {hipHostMallocCoherent, hipHostMallocCoherent | hipHostMallocMapped}) {
    void* coherent = nullptr;
    REQUIRE(hipHostMalloc(&coherent, 64, flags) == hipSuccess);
    CHECK(test::cuda().last() == "cuMemHostAlloc 64 3");
    CHECK(hipHostFree(coherent) == hipSuccess);
    CHECK(has(test::cuda().take(), call("cuMemFreeHost", number(coherent))));
  }
  CHECK(launch_log(function) == kKernel);
  const unsigned all[] = {hipHostMallocDefault, hipHostMallocMapped, hipHostMallocPortable,
                          hipHostMallocNonCoherent};
  for (const unsigned flags : all) {
    const Memory memory(64, flags);
    CHECK(has(memory.log, call("cuMemCreate", kGranule, 1, 1, 0, 0)));
    CHECK_FALSE(has(memory.log, "cuMemHostAlloc 64"));
    CHECK_FALSE(has(memory.log, "cuMemsetD8_v2"));
    unsigned got = 1;
    CHECK(hipHostGetFlags(&got, memory.pointer) == hipSuccess);
    CHECK(got == flags);
  }
}

TEST_CASE("non-coherent 2: two memories have one address, and a third view is its alias" *
          doctest::skip()) {
  const Memory memory(5000);
  CHECK(has(memory.log, call("cuMemHostRegister_v2", number(memory.alias), 5000, 3)));
  CHECK(has(memory.log, call("cuMemMap", number(memory.pointer), kGranule, 0, 0x50, 0)));
  CHECK(has(memory.log, call("cuMemSetAccess", number(memory.pointer), kGranule, 3, 2)));
  CHECK(has(memory.log, call("cuMemsetD8Async", number(memory.pointer), 0, kGranule)));
  std::memset(memory.pointer, 7, 5000);
  CHECK(memory.alias[0] == 7);
  CHECK(memory.alias[4999] == 7);
  memory.alias[4999] = 8;
  CHECK(*memory.at(4999) == 8);
}

TEST_CASE("non-coherent 3: a kernel runs between two merges" * doctest::skip()) {
  const hipFunction_t function = kernel();
  const Memory memory(64);
  const std::string merged = std::string("merge 0 2\n") + kKernel + "merge 8 2\n";
  CHECK(launch_log(function) == merged);
  (void)test::cuda().take();
  CHECK(hipLaunchKernel(function, dim3(1), dim3(1), nullptr, 0, hipStreamPerThread) == hipSuccess);
  CHECK(test::cuda().take().ends_with(merged));
  hipEvent_t event = nullptr;
  REQUIRE(hipEventCreate(&event) == hipSuccess);
  CHECK(hipExtLaunchKernel(function, dim3(1), dim3(1), nullptr, 0, hipStreamPerThread, event, event,
                           0) == hipSuccess);
  const std::string record = call("cuEventRecord", number(event), 2) + "\n";
  CHECK(test::cuda().take().ends_with(record + merged + record));
  // A kernel that did not start has written nothing.
  test::cuda().set("cuLaunchKernel", 1);
  CHECK(hipLaunchKernel(function, dim3(1), dim3(1), nullptr, 0, nullptr) == hipErrorInvalidValue);
  test::cuda().set("cuLaunchKernel", 0);
  CHECK(test::cuda().last() == "cuLaunchKernel 240 1 1 1 1 1 1 0 0 0 0 0");
}

TEST_CASE("non-coherent 4: copies, fills and stream values access the host's copy" *
          doctest::skip()) {
  const Memory memory(64);
  const std::uint64_t alias = number(memory.alias);
  int other = 0;
  CHECK(hipMemcpyAsync(memory.at(8), &other, 4, hipMemcpyDefault, nullptr) == hipSuccess);
  CHECK(test::cuda().last() == call("cuMemcpyAsync", alias + 8, number(&other), 4, 0));
  CHECK(hipMemcpyAsync(&other, memory.at(60), 4, hipMemcpyDefault, nullptr) == hipSuccess);
  CHECK(test::cuda().last() == call("cuMemcpyAsync", number(&other), alias + 60, 4, 0));
  CHECK(hipMemcpy(memory.pointer, &other, 4, hipMemcpyDefault) == hipSuccess);
  CHECK(test::cuda().last() == call("cuMemcpy", alias, number(&other), 4));
  CHECK(hipMemset(memory.pointer, 1, 4) == hipSuccess);
  CHECK(test::cuda().last() == call("cuMemsetD8_v2", alias, 1, 4));
  CHECK(hipMemsetAsync(memory.at(1), 1, 4, nullptr) == hipSuccess);
  CHECK(test::cuda().last() == call("cuMemsetD8Async", alias + 1, 1, 4, 0));
  CHECK(hipStreamWaitValue32(nullptr, memory.at(4), 5, hipStreamWaitValueEq) == hipSuccess);
  CHECK(test::cuda().last() == call("cuStreamWaitValue32_v2", 0, alias + 4, 5, 1));
  CHECK(hipStreamWaitValue64(nullptr, memory.at(8), 5, hipStreamWaitValueGte) == hipSuccess);
  CHECK(test::cuda().last() == call("cuStreamWaitValue64_v2", 0, alias + 8, 5, 0));
  CHECK(hipStreamWriteValue32(nullptr, memory.at(4), 5, 0) == hipSuccess);
  CHECK(test::cuda().last() == call("cuStreamWriteValue32_v2", 0, alias + 4, 5, 0));
  CHECK(hipStreamWriteValue64(nullptr, memory.at(8), 5, 0) == hipSuccess);
  CHECK(test::cuda().last() == call("cuStreamWriteValue64_v2", 0, alias + 8, 5, 0));
  CHECK(forward_host_copy(memory.at(63)) == memory.alias + 63);
  CHECK(forward_host_copy(memory.at(64)) == memory.at(64));
  CHECK(forward_host_copy(&other) == &other);
}

TEST_CASE("non-coherent 5: a program sees one address" * doctest::skip()) {
  const Memory memory(64);
  void* device = nullptr;
  CHECK(hipHostGetDevicePointer(&device, memory.at(4), 0) == hipSuccess);
  CHECK(device == memory.at(4));
  CHECK(test::cuda().last() == call("cuMemHostGetDevicePointer_v2", number(memory.alias) + 4, 0));
  // The driver's answers are for the alias: the stub says 0x9000 and 0x8000.
  const std::uint64_t distance = number(memory.alias) - number(memory.pointer);
  test::cuda().set("memory type", 1);
  hipPointerAttribute_t attributes;
  CHECK(hipPointerGetAttributes(&attributes, memory.pointer) == hipSuccess);
  test::cuda().set("memory type", 0);
  CHECK(attributes.type == hipMemoryTypeHost);
  CHECK(number(attributes.devicePointer) == 0x9000 - distance);
  CHECK(number(attributes.hostPointer) == 0x8000 - distance);
  void* host = nullptr;
  CHECK(hipPointerGetAttribute(&host, HIP_POINTER_ATTRIBUTE_HOST_POINTER, memory.pointer) ==
        hipSuccess);
  CHECK(number(host) == 0x8000 - distance);
  hipDeviceptr_t base = nullptr;
  CHECK(hipMemGetAddressRange(&base, nullptr, memory.at(4)) == hipSuccess);
  CHECK(base == memory.pointer);
  hipIpcMemHandle_t handle;
  (void)hipIpcGetMemHandle(&handle, memory.pointer);
  CHECK(test::cuda().last() == call("cuIpcGetMemHandle", number(memory.alias)));
  (void)hipHostRegister(memory.pointer, 64, hipHostRegisterDefault);
  CHECK(test::cuda().last() == call("cuMemHostRegister_v2", number(memory.alias), 64, 3));
}

TEST_CASE("non-coherent 6: a release waits, then undoes in order" * doctest::skip()) {
  void* pointer = nullptr;
  char* alias = nullptr;
  {
    const Memory memory(64);
    pointer = memory.pointer;
    alias = memory.alias;
    (void)test::cuda().take();
  }
  const std::string log = test::cuda().take();
  std::vector<std::string> found = names(log);
  std::erase(found, "cuCtxGetCurrent");
  std::erase(found, "cuCtxSetCurrent");
  const std::vector<std::string> expected = {"cuThreadExchangeStreamCaptureMode",
                                             "cuCtxSynchronize",
                                             "cuMemUnmap",
                                             "cuMemAddressFree",
                                             "cuMemRelease",
                                             "cuMemHostUnregister",
                                             "cuThreadExchangeStreamCaptureMode"};
  CHECK(found == expected);
  CHECK(has(log, call("cuMemHostUnregister", number(alias))));
  // The stub's last number: the host cannot read the reservation that the driver gets back.
  CHECK(has(log, call("cuMemAddressFree", number(pointer), kGranule, 0)));
  CHECK(forward_host_copy(pointer) == pointer);
  CHECK(launch_log(kernel()).starts_with("merge 0 2\n"));
}

TEST_CASE("non-coherent 7: a failure undoes what was done" * doctest::skip()) {
  struct Failure {
    const char* call;
    int code;
    hipError_t error;
  };
  const Failure failures[] = {{"cuMemHostRegister_v2", 2, hipErrorOutOfMemory},
                              {"cuMemAddressReserve", 2, hipErrorOutOfMemory},
                              {"cuMemCreate", 2, hipErrorOutOfMemory},
                              {"cuMemMap", 1, hipErrorInvalidValue},
                              {"cuMemSetAccess", 1, hipErrorInvalidValue},
                              {"reservation in use", 1, hipErrorNotSupported}};
  for (const Failure& failure : failures) {
    INFO(std::string(failure.call));
    test::cuda().set(failure.call, failure.code);
    void* pointer = &pointer;
    (void)test::cuda().take();
    CHECK(hipHostMalloc(&pointer, 64, hipHostMallocDefault) == failure.error);
    CHECK(pointer == nullptr);
    test::cuda().set(failure.call, 0);
    const std::string log = test::cuda().take();
    CHECK(has(log, "cuMemHostUnregister") == has(log, "cuMemHostGetDevicePointer_v2"));
    CHECK(has(log, "cuMemAddressFree") == has(log, "cuMemCreate"));
    CHECK(has(log, "cuMemUnmap") == has(log, "cuMemSetAccess"));
  }
  const Memory memory(64);
}

TEST_CASE("non-coherent 8: a reset forgets all memory" * doctest::skip()) {
  void* pointer = nullptr;
  REQUIRE(hipHostMalloc(&pointer, 64, hipHostMallocDefault) == hipSuccess);
  REQUIRE(hipDeviceReset() == hipSuccess);
  CHECK(forward_host_copy(pointer) == pointer);
  CHECK(launch_log(kernel()) == kKernel);
  const Memory memory(64);
  CHECK(has(memory.log, "cuModuleLoadData"));
}
