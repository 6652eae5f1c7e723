#include "comm/chores.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace hetccl::comm {
namespace {

TEST_CASE("chores run in order, in the background, and the destructor waits for them") {
  std::vector<int> order;
  std::atomic<bool> open{false};
  {
    Chores chores;
    chores.wait();
    const auto post = [&](int i) { return chores.post([&order, i] { order.push_back(i); }); };
    REQUIRE(chores
                .post([&] {
                  while (!open.load()) std::this_thread::yield();
                  order.push_back(0);
                })
                .ok());
    for (int i = 1; i < 50; ++i) REQUIRE(post(i).ok());
    CHECK(order.empty());
    open.store(true);
    chores.wait();
    CHECK(order.size() == 50);
    // The thread has ended: another takes its place.
    for (int i = 50; i < 60; ++i) REQUIRE(post(i).ok());
  }
  REQUIRE(order.size() == 60);
  for (int i = 0; i < 60; ++i) CHECK(order[static_cast<size_t>(i)] == i);
}

}  // namespace
}  // namespace hetccl::comm
