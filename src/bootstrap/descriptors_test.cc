#include "bootstrap/descriptors.h"

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
  static rlim_t soft() {
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    return now.rlim_cur;
  }
  rlimit before{};
};

TEST_CASE("the soft limit is raised as far as needed, no further than the hard one") {
  const Limits limits;
  REQUIRE(limits.before.rlim_max >= 2'000);
  limits.soft(600);
  CHECK(reserve_descriptors(10).ok());
  CHECK(Limits::soft() == 600);
  CHECK(reserve_descriptors(1'000).ok());
  CHECK(Limits::soft() >= 1'000);
  CHECK(Limits::soft() < 2'000);
  if (limits.before.rlim_max == RLIM_INFINITY) return;
  const Status refused = reserve_descriptors(limits.before.rlim_max);
  CHECK(refused.code() == Code::SystemError);
  CHECK(contains(refused.message(), "ulimit -Hn"));
  CHECK(contains(refused.message(), std::to_string(limits.before.rlim_max)));
}

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
