#include "base/descriptors.h"

#include <doctest/doctest.h>

#include <string>

#include "fake/descriptor_limits.h"

namespace hetccl {
namespace {

TEST_CASE("the soft limit is raised as far as needed, no further than the hard one") {
  const fake::DescriptorLimits limits;
  REQUIRE(limits.before.rlim_max >= 2'000);
  limits.soft(600);
  CHECK(reserve_descriptors(10).ok());
  CHECK(fake::DescriptorLimits::soft() == 600);
  CHECK(reserve_descriptors(1'000).ok());
  CHECK(fake::DescriptorLimits::soft() >= 1'000);
  CHECK(fake::DescriptorLimits::soft() < 2'000);
  if (limits.before.rlim_max == RLIM_INFINITY) return;
  const Status refused = reserve_descriptors(limits.before.rlim_max);
  CHECK(refused.code() == ErrorCode::SystemError);
  CHECK(refused.message().find("ulimit -Hn") != std::string::npos);
  CHECK(refused.message().find(std::to_string(limits.before.rlim_max)) != std::string::npos);
}

}  // namespace
}  // namespace hetccl
