// Calls are NVTX ranges for a tool that listens: NVTX loads it (nvtx_listener.cc) at the first one.
#include <dlfcn.h>

#include <cstdlib>

#include "capi/threads.h"

using namespace hetccl::capi_test;

namespace {

std::string seen() {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  REQUIRE(path != nullptr);
  void* listener = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (listener == nullptr) return "nobody listens";
  const auto ask = reinterpret_cast<const char* (*)()>(dlsym(listener, "seen_ranges"));
  return ask();
}

}  // namespace

TEST_CASE("a tool sees calls by name, with their bytes, as ranges of the thread that calls") {
  const std::vector<hetcclComm_t> comms = join(1, false);
  std::vector<float> data(1000, 1);
  CHECK(sum(data, comms[0], nullptr) == hetcclSuccess);
  CHECK(seen() == "hetccl:all_reduce(4000) ");
  CHECK(hetcclGroupStart() == hetcclSuccess);
  CHECK(hetcclSend(data.data(), 10, hetcclInt8, 0, comms[0], nullptr) == hetcclSuccess);
  CHECK(hetcclRecv(data.data() + 50, 10, hetcclInt8, 0, comms[0], nullptr) == hetcclSuccess);
  CHECK(seen() == "");
  CHECK(hetcclGroupEnd() == hetcclSuccess);
  CHECK(seen() == "hetccl:group(2) ");
  CHECK(sum(data, nullptr, nullptr) != hetcclSuccess);
  CHECK(seen() == "");
  CHECK(hetcclCommDestroy(comms[0]) == hetcclSuccess);
}
