#include "comm/window_budget.h"

#include <doctest/doctest.h>

#include <vector>

#include "fake/fake_device.h"

namespace hetccl::comm {

TEST_CASE("communicators share a device's budget: many have something, and it comes back") {
  const auto device = std::move(fake::FakeDevice::create()).value();
  const size_t budget = size_t{96} << 20U;
  WindowBudget windows(size_t{8} << 30U);
  {
    std::vector<WindowBudget::Share> shares;
    size_t all = 0;
    for (int i = 0; i < 100; ++i) {
      shares.push_back(windows.take(*device));
      const size_t bytes = shares.back().bytes();
      CHECK((i == 0 || bytes <= shares[shares.size() - 2].bytes()));
      CHECK((i > 7 || bytes > 0));
      all += bytes;
    }
    CHECK(shares[0].bytes() == budget / 3);
    CHECK(all <= budget);
    CHECK(shares.back().bytes() == 0);
    // Another's device has its own.
    const auto other = std::move(fake::FakeDevice::create()).value();
    CHECK(windows.take(*other).bytes() == budget / 3);
  }
  auto first = windows.take(*device);
  CHECK(first.bytes() == budget / 3);
  first.keep(0);
  first.keep(100);
  CHECK(windows.take(*device).bytes() == budget / 3);
}

TEST_CASE("on a host with much memory sixty communicators have all that makes them fast") {
  const auto device = std::move(fake::FakeDevice::create()).value();
  WindowBudget windows(size_t{512} << 30U);
  std::vector<WindowBudget::Share> shares;
  for (int i = 0; i < 60; ++i) {
    shares.push_back(windows.take(*device));
    CHECK(shares.back().bytes() == size_t{64} << 20U);
  }
}

}  // namespace hetccl::comm
