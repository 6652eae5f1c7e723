// More ranks than descriptors at first.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include "bootstrap/frame.h"
#include "bootstrap/testing.h"

namespace hetccl::bootstrap {
namespace {

using namespace testing;

// This process's limits, put back at the end.
struct Limits {
  Limits() { ::getrlimit(RLIMIT_NOFILE, &before); }
  ~Limits() { ::setrlimit(RLIMIT_NOFILE, &before); }
  void soft(rlim_t limit) const {
    const rlimit lowered{limit, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &lowered) == 0);
  }
  rlimit before{};
};

TEST_CASE("more ranks than the soft limit allows join all the same") {
  const Limits limits;
  limits.soft(256);
  constexpr int kRanks = 150;  // each at both ends of its connection here
  const auto one = service();
  const auto id = one->unique_id();
  CHECK(complete(join_all({one.get()}, id.value(), kRanks)));
}

TEST_CASE("more ranks than the hard limit allows are told so") {
  const Limits limits;
  if (limits.before.rlim_max >= kMaxRanks) return;
  const auto one = service();
  const auto id = one->unique_id();
  const auto joined = one->join(id.value(), options(0, kMaxRanks));
  CHECK(joined.status().code() == Code::SystemError);
  CHECK(contains(joined.status().message(), "65536 connections take"));
}

}  // namespace
}  // namespace hetccl::bootstrap
