#include "base/hip_version.h"

#include <doctest/doctest.h>

namespace hetccl {
namespace {

TEST_CASE("HIP's numbers of versions, and which are too old") {
  CHECK(hip_version_text(60'443'484) == "6.4");
  CHECK(hip_version_text(70'051'831) == "7.0");
  CHECK(hip_version_text(50'221'153) == "5.2");
  CHECK(hip_version_text(312) == "3.12");
  CHECK(check_hip_version("x", 0).ok());
  CHECK(check_hip_version("x", 60'000'000).ok());
  CHECK(check_hip_version("x", 59'999'999).code() == ErrorCode::Unsupported);
  CHECK(check_hip_version("x", 312).message().starts_with("x is HIP 3.12; hetccl needs"));
}

}  // namespace
}  // namespace hetccl
