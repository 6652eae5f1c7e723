// The limit of this process's descriptors, for tests that lower it.
#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>

namespace hetccl::fake {

/// Puts the limits back at its end.
struct DescriptorLimits {
  DescriptorLimits() { ::getrlimit(RLIMIT_NOFILE, &before); }
  ~DescriptorLimits() { ::setrlimit(RLIMIT_NOFILE, &before); }
  DescriptorLimits(const DescriptorLimits&) = delete;
  DescriptorLimits& operator=(const DescriptorLimits&) = delete;

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

}  // namespace hetccl::fake
