// AMD's compiler makes every kernel for GPUs of 64 and of 32 threads a wave.
#include <doctest/doctest.h>

#include <set>

#include "device/kernels/build.h"
#include "fake/reference.h"

using namespace hetccl;
using namespace hetccl::device::kernels;

namespace {

std::set<std::string> kernel_names() {
  std::set<std::string> names = {kWaitFlag, kWriteFlag, kCopyList};
  for (const DataType type : fake::kTypes)
    for (const RedOp op : fake::ops_of(type)) names.insert(name_of(type, op));
  for (const DataType type : {DataType::Float16, DataType::BFloat16, DataType::Float32})
    for (const Format format : kFormats) names.insert(name_of(type, format));
  return names;
}

}  // namespace

TEST_CASE("every kernel compiles once, for 64 threads a wave and for 32") {
  auto compiler = load_hiprtc("");
  REQUIRE_MESSAGE(compiler.ok(), compiler.status().message());
  for (const char* architecture :
       {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"}) {
    CAPTURE(architecture);
    auto images = build(**compiler, architecture, Cache(""), Log{});
    REQUIRE_MESSAGE(images.ok(), images.status().message());
    CHECK(images->size() == kParts);
    for (const std::string& name : kernel_names()) {
      CAPTURE(name);
      int found = 0;
      // The descriptor, which the runtime launches by.
      for (const std::string& image : *images)
        found += image.find(name + ".kd" + '\0') != std::string::npos ? 1 : 0;
      CHECK(found == 1);
    }
  }
}

// (An architecture that does not exist ends the process, in AMD's compiler.)
TEST_CASE("what does not compile is shown with the compiler's words") {
  auto compiler = load_hiprtc("");
  REQUIRE_MESSAGE(compiler.ok(), compiler.status().message());
  const Status status = compile(**compiler, "int x = nowhere;", "gfx942", 0).status();
  CHECK(status.code() == ErrorCode::SystemError);
  CHECK(status.message().find("nowhere") != std::string::npos);
}

TEST_CASE("a library that is no compiler") {
  CHECK(load_hiprtc("/nonexistent/libhiprtc.so").status().code() == ErrorCode::SystemError);
  const Status status = load_hiprtc("libc.so.6").status();
  CHECK(status.message().find("it lacks hiprtcVersion") != std::string::npos);
}
