// The kernels compile for real architectures, without a GPU too.
#include "device/kernels/compiler.h"

#include <doctest/doctest.h>

#include <set>

#include "device/kernels/build.h"
#include "fake/reference.h"
#include "gpu/gpu.h"

using namespace hetccl;
using namespace hetccl::device::kernels;

namespace {

void check_kernels(const Compiler& compiler, const char* architecture) {
  const auto images = build(compiler, architecture, Cache(""), Log{});
  REQUIRE_MESSAGE(images.ok(), images.status().message());
  CHECK(images.value().size() == kParts);
  std::set<std::string> names = {kWaitFlag, kWriteFlag};
  for (const DataType type : fake::kTypes)
    for (const RedOp op : fake::ops_of(type)) names.insert(name_of(type, op));
  for (const std::string& name : names) {
    CAPTURE(name);
    int found = 0;
    // A symbol of the code begins behind a zero or another section's dot.
    for (const std::string& image : images.value())
      found += image.find(".text." + name + '\0') != std::string::npos ? 1 : 0;
    CHECK(found == 1);
  }
}

}  // namespace

TEST_CASE("every part compiles for Hopper, and has every kernel once") {
  const auto compiler = gpu_tests::compiler();
  if (compiler != nullptr) check_kernels(*compiler, "sm_90");
}

TEST_CASE("every part compiles for Volta by NVRTC 12, the last that knows it") {
  const auto compiler = gpu_tests::compiler();
  if (compiler == nullptr) return;
  if (compiler->version < "13") {
    check_kernels(*compiler, "sm_70");
    return;
  }
  MESSAGE("NOT TESTED: sm_70, which NVRTC ", compiler->version,
          " lacks: name a libnvrtc.so.12 in HETCCL_TEST_NVRTC");
  const Status status = compile(*compiler, source(), "sm_70", 0).status();
  CHECK(status.message().find("sm_70") != std::string::npos);
}

TEST_CASE("an older architecture compiles too, one that does not exist says so") {
  const auto compiler = gpu_tests::compiler();
  if (compiler == nullptr) return;
  CHECK(compile(*compiler, source(), "sm_80", 4).ok());
  CHECK(compile(*compiler, source(), "sm_80", 5).ok());
  const Status status = compile(*compiler, source(), "sm_1", 0).status();
  CHECK(status.code() == ErrorCode::SystemError);
  CHECK(status.message().find("sm_1") != std::string::npos);
}

TEST_CASE("what does not compile is shown with the compiler's words") {
  const auto compiler = gpu_tests::compiler();
  if (compiler == nullptr) return;
  const Status status = compile(*compiler, "int x = nowhere;", "sm_90", 0).status();
  CHECK(status.message().find("nowhere") != std::string::npos);
}

TEST_CASE("a library that is absent, and one that is no compiler") {
  CHECK(load_nvrtc("/nonexistent/libnvrtc.so").status().code() == ErrorCode::SystemError);
  CHECK(load_nvrtc("libc.so.6").status().code() == ErrorCode::Unsupported);
}
