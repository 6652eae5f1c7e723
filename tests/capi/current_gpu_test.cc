// The C API in a process that uses a GPU: with a driver that calls itself CUDA's, whose memory no
// host thread can touch, and whose GPUs cannot be opened.
#include <dlfcn.h>

#include <cstdint>

#include "capi/threads.h"
#include "fake/thread.h"
#include "hetccl/endpoint.h"

using namespace hetccl::capi_test;

namespace {

struct FakeDriver {
  void* handle = nullptr;
  template <typename Call>
  Call* find(const char* name) const {
    void* const found = dlsym(handle, name);
    REQUIRE(found != nullptr);
    return reinterpret_cast<Call*>(found);
  }
  void load() {
    handle = dlopen(HETCCL_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(handle != nullptr, dlerror());
  }
  [[nodiscard]] bool initialised() const { return find<bool()>("fake_initialised")(); }
  void initialise() const { CHECK(find<int(unsigned)>("cuInit")(0) == 0); }
  /// The calling thread's current GPU from now on; -1: none.
  void use(int gpu) const {
    CHECK(find<int(void*)>("cuCtxSetCurrent")(
              reinterpret_cast<void*>(static_cast<intptr_t>(gpu) + 1)) == 0);
  }
};

FakeDriver driver;

void refused(hetcclResult_t result, const std::string& text, hetcclResult_t expected) {
  CHECK(result == expected);
  CAPTURE(std::string(hetcclGetLastError(nullptr)));
  CHECK(std::string(hetcclGetLastError(nullptr)).find(text) != std::string::npos);
}

hetcclUniqueId new_id() {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  return id;
}

hetcclComm_t on_host() {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.device = "host";
  hetcclComm_t comm = nullptr;
  REQUIRE(hetcclCommInitRankConfig(&comm, 1, new_id(), 0, &config) == hetcclSuccess);
  return comm;
}

}  // namespace

// One after the other, since what a process has loaded stays.
TEST_CASE("a process that comes to use a GPU") {
  hetcclComm_t comm = on_host();
  std::vector<float> data(100, 1);
  CHECK(sum(data, comm, nullptr) == hetcclSuccess);

  // A driver that is loaded and not initialised is left so.
  driver.load();
  hetcclComm_t unasked = nullptr;
  REQUIRE(hetcclCommInitRank(&unasked, 1, new_id(), 0) == hetcclSuccess);
  std::vector<float> others(100, 1);
  CHECK(sum(others, unasked, nullptr) == hetcclSuccess);
  CHECK(!driver.initialised());
  CHECK(hetcclCommDestroy(unasked) == hetcclSuccess);

  // So is a thread without a context.
  driver.initialise();
  REQUIRE(hetcclCommInitRank(&unasked, 1, new_id(), 0) == hetcclSuccess);
  int gpu = 0;
  CHECK(hetcclCommCuDevice(unasked, &gpu) == hetcclSuccess);
  CHECK(gpu == -1);
  CHECK(hetcclCommDestroy(unasked) == hetcclSuccess);

  // A thread with one gets that GPU, which this driver cannot open.
  driver.use(1);
  refused(hetcclCommInitRank(&unasked, 1, new_id(), 0), "opening the device", hetcclSystemError);
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  refused(hetcclCommInitRankConfig(&unasked, 1, new_id(), 0, &config), "opening the device",
          hetcclSystemError);
  CHECK(hetcclCommDestroy(on_host()) == hetcclSuccess);
  const int devices[] = {0, 1}, twice[] = {1, 1}, negative[] = {-1, 0};
  std::vector<hetcclComm_t> comms(2, comm);
  refused(hetcclCommInitAll(comms.data(), 2, devices), "opening the device", hetcclSystemError);
  CHECK(comms == std::vector<hetcclComm_t>(2, nullptr));
  refused(hetcclCommInitAll(comms.data(), 2, twice), "devlist names device 1 twice",
          hetcclInvalidArgument);
  refused(hetcclCommInitAll(comms.data(), 2, negative), "devlist[0] is -1", hetcclInvalidArgument);

  // Memory is of that GPU, and no rank of the host touches it.
  void* memory = nullptr;
  REQUIRE(hetcclMemAlloc(&memory, 400) == hetcclSuccess);
  auto* const foreign = static_cast<float*>(memory);
  const auto reduce = [&](const void* send, void* recv, size_t count) {
    return hetcclAllReduce(send, recv, count, hetcclFloat32, hetcclSum, comm, nullptr);
  };
  refused(reduce(foreign, data.data(), 100), "sendbuff is memory of the GPU cuda:1, and this rank",
          hetcclInvalidArgument);
  refused(reduce(data.data(), foreign + 3, 1), "recvbuff is memory of the GPU cuda:1",
          hetcclInvalidArgument);
  CHECK(reduce(foreign, foreign, 0) == hetcclSuccess);
  refused(hetcclAllReduceWithResidual(data.data(), data.data(), foreign, 100, hetcclFloat32,
                                      hetcclSum, comm, nullptr),
          "residual is memory of the GPU", hetcclInvalidArgument);
  CHECK(hetcclGroupStart() == hetcclSuccess);
  CHECK(hetcclSend(data.data(), 1, hetcclFloat32, 0, comm, nullptr) == hetcclSuccess);
  CHECK(hetcclRecv(foreign, 1, hetcclFloat32, 0, comm, nullptr) == hetcclSuccess);
  refused(hetcclGroupEnd(), "recvbuff is memory of the GPU", hetcclInvalidArgument);
  refused(hetcclEncode(foreign, data.data(), 64, hetcclFloat32, "int8", comm, nullptr),
          "what is read is memory of the GPU", hetcclInvalidArgument);
  hetcclRedOp_t op{};
  refused(hetcclRedOpCreatePreMulSum(&op, foreign, hetcclFloat32, hetcclScalarDevice, comm),
          "scalar is memory of the GPU", hetcclInvalidArgument);
  CHECK(sum(data, comm, nullptr) == hetcclSuccess);
  hetcclEndpoint_t endpoint = nullptr;
  REQUIRE(hetcclEndpointCreate(&endpoint, "waits", "host") == hetcclSuccess);
  uint64_t region = 0;
  refused(hetcclEndpointRegister(endpoint, foreign, 400, hetcclRegionPut, "", &region),
          "data is memory of the GPU cuda:1, and this endpoint takes memory of the host",
          hetcclInvalidArgument);
  CHECK(hetcclEndpointDestroy(endpoint) == hetcclSuccess);

  // Another thread, which has no GPU, frees it, and keeps none.
  hetccl::fake::Thread([&] {
    CHECK(hetcclMemFree(memory) == hetcclSuccess);
    void* own = nullptr;
    CHECK(hetcclMemAlloc(&own, 8) == hetcclSuccess);
    *static_cast<uint64_t*>(own) = 1;  // the host's
    CHECK(hetcclMemFree(own) == hetcclSuccess);
  }).join();
  refused(hetcclMemAlloc(&memory, SIZE_MAX / 2), "out of memory", hetcclSystemError);
  CHECK(memory == nullptr);
  CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
}
