// Serves more ranks than the initial limit of descriptors.
#include <doctest/doctest.h>

#include "bootstrap/frame.h"
#include "bootstrap/testing.h"
#include "fake/descriptor_limits.h"

namespace hetccl::bootstrap {
namespace {

using namespace testing;

TEST_CASE("more ranks than the soft limit allows join all the same") {
  const fake::DescriptorLimits limits;
  limits.soft(256);
  constexpr int kRanks = 150;  // both ends of each connection are here
  const auto one = service();
  const auto id = one->unique_id();
  CHECK(complete(join_all({one.get()}, id.value(), kRanks)));
}

TEST_CASE("more ranks than the hard limit allows are told so") {
  const fake::DescriptorLimits limits;
  if (limits.before.rlim_max >= kMaxRanks) return;
  const auto one = service();
  const auto id = one->unique_id();
  const auto joined = one->join(id.value(), options(0, kMaxRanks));
  CHECK(joined.status().code() == ErrorCode::SystemError);
  CHECK(contains(joined.status().message(), "65536 connections take"));
}

}  // namespace
}  // namespace hetccl::bootstrap
