#include "comm/chores.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace hetccl::comm {
namespace {

TEST_CASE("chores run in order, in the background, and the destructor waits for them") {
  std::vector<int> order;
  std::atomic<bool> open{false};
  {
    Chores chores({});
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
    // The first thread has ended; another one starts.
    for (int i = 50; i < 60; ++i) REQUIRE(post(i).ok());
  }
  REQUIRE(order.size() == 60);
  for (int i = 0; i < 60; ++i) CHECK(order[static_cast<size_t>(i)] == i);
}

TEST_CASE("a chore that throws is told, and the next ones run") {
  std::vector<std::string> told;
  bool ran = false;
  Chores chores([&](const Status& why) { told.push_back(why.message()); });
  REQUIRE(chores.post([] { throw std::bad_alloc(); }).ok());
  REQUIRE(chores.post([] { throw std::runtime_error("odd"); }).ok());
  REQUIRE(chores.post([&] { ran = true; }).ok());
  chores.wait();
  CHECK(told == std::vector<std::string>{"out of memory", "unexpected exception: odd"});
  CHECK(ran);
}

}  // namespace
}  // namespace hetccl::comm
