#include "bootstrap/loop.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "fake/manual_clock.h"

namespace hetccl::bootstrap {
namespace {

TEST_CASE("what a task or a timer throws is told, until that succeeds, and the loop goes on") {
  std::atomic<int> told{0};
  const auto loop = std::move(Loop::create([&](const Status& why) {
                      CHECK(why.message() == "out of memory");
                      if (++told == 1) throw std::bad_alloc();  // no memory for this either
                    })).value();
  REQUIRE(loop->post([] { throw std::bad_alloc(); }));
  for (int i = 0; told < 2 && i < 60'000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(told == 2);
  CHECK(loop->run([&] { loop->at(loop->now(), [] { throw std::bad_alloc(); }); }));
  for (int i = 0; told < 3 && i < 60'000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(told == 3);
  // A thread that waits for a task gets its exception.
  CHECK_THROWS_WITH(loop->run([] { throw std::runtime_error("odd"); }), "odd");
  CHECK(told == 3);
  loop->stop(Duration(0));
}

TEST_CASE("timers go by the clock that the loop is given") {
  fake::ManualClock clock;  // only the loop's thread touches it
  const auto loop = std::move(Loop::create({}, clock)).value();
  std::vector<int> order;
  using std::chrono::hours;
  CHECK(loop->run([&] {
    loop->at(loop->now() + hours(2), [&] { order.push_back(2); });
    loop->at(loop->now() + hours(1), [&] { order.push_back(1); });
  }));
  const auto pass = [&](Duration time) {
    CHECK(loop->run([&] { clock.time += time; }));
    for (int turn = 0; turn < 2; ++turn) CHECK(loop->run([] {}));
  };
  pass(std::chrono::minutes(59));
  CHECK(loop->run([&] { CHECK(order.empty()); }));
  pass(hours(2));
  CHECK(loop->run([&] { CHECK(order == std::vector<int>{1, 2}); }));
  loop->stop(Duration(0));
}

}  // namespace
}  // namespace hetccl::bootstrap
