// The devices that a Runtime has.
#include "comm/runtime.h"

#include <doctest/doctest.h>

#include "gpu/gpu.h"

using namespace hetccl;
using namespace hetccl::comm;
using namespace hetccl::gpu_tests;

TEST_CASE("what is no device is refused with what there is") {
  auto made = Runtime::create(Config{});
  REQUIRE(made.ok());
  for (const char* name : {"cuda:", "cuda:x", "cuda:-1", "cudax", "rocm"}) {
    const Status status = made.value()->device(name).status();
    CHECK(status.code() == ErrorCode::Unsupported);
    CHECK(status.message().find("\"host\"") != std::string::npos);
  }
  const Status hip = made.value()->device("hip:x").status();
  CHECK(hip.message().find("\"host\"") != std::string::npos);
  if (runtime() == nullptr) {
    const Status status = made.value()->device("cuda").status();
    CHECK(status.message().find("no CUDA driver") != std::string::npos);
    CHECK(made.value()->resolve_device("cuda") == "cuda");
  }
}
