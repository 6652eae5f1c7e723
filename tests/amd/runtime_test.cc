// AMD's own libraries have every call that hetccl makes, and say so where there is no GPU.
#include <doctest/doctest.h>

#include "ccl/nccl/api.h"
#include "device/gpu/api.h"

using namespace hetccl;

TEST_CASE("the HIP runtime has every call, and says that there is no GPU") {
  const auto loaded = device::gpu::load_hip("");
  if (loaded.ok()) return;  // there is one: tests/gpu has the rest
  const std::string text = loaded.status().message();
  INFO(text);
  CHECK(loaded.status().code() == ErrorCode::Unsupported);
  CHECK(text.find("it lacks") == std::string::npos);
  CHECK(text.find("libamdhip64.so") != std::string::npos);
  CHECK(text.find("no ROCm-capable device") != std::string::npos);
}

TEST_CASE("a library that is absent, and one that is no HIP runtime") {
  CHECK(device::gpu::load_hip("/nonexistent/libamdhip64.so").status().code() ==
        ErrorCode::Unsupported);
  const Status status = device::gpu::load_hip("libc.so.6").status();
  CHECK(status.message().find("it lacks hipInit") != std::string::npos);
}
