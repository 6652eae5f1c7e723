// Tests which HIP runtimes are refused.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include "device/gpu/api.h"

namespace hetccl::device::gpu {
namespace {

TEST_CASE("HIP before 6 is refused, and stays loaded since it was called") {
  const std::string path = HETCCL_FAKE_RUNTIMES "/libamdhip64.so.5";
  const Status status = load_hip(path).status();
  CHECK(status.code() == ErrorCode::Unsupported);
  CHECK(status.message() == "the HIP runtime: " + path +
                                " is HIP 5.2; hetccl needs HIP 6 or newer: install ROCm 6 or "
                                "newer, or name its libamdhip64 by HETCCL_HIP_LIBRARY");
  CHECK(dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD) != nullptr);
}

}  // namespace
}  // namespace hetccl::device::gpu
