#include "base/descriptors.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <string>

namespace hetccl {
namespace {

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
  CHECK(refused.message().find("ulimit -Hn") != std::string::npos);
  CHECK(refused.message().find(std::to_string(limits.before.rlim_max)) != std::string::npos);
}

}  // namespace
}  // namespace hetccl
