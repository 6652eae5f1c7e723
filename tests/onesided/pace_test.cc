// Turns follow the speed of the link, and idle time does not count.
#include "onesided/pace.h"

#include <doctest/doctest.h>

namespace hetccl::onesided {
namespace {

using std::chrono::milliseconds;

// Lets a busy link move `bytes_a_ms` for `n` milliseconds from `now` on, and returns the end.
TimePoint run(Pace& pace, size_t bytes_a_ms, int n, TimePoint now) {
  for (int i = 0; i <= n; ++i, now += milliseconds(1)) pace.count(bytes_a_ms, now);
  return now;
}

TEST_CASE("a turn is what the link moves in its time") {
  Pace pace;
  TimePoint now{};
  CHECK(pace.bytes() == Pace::kFirst);
  now = run(pace, 1'250'000, 4, now);  // 10 Gbit/s
  CHECK(pace.bytes() == 4 * Pace::kLeast);
  pace.rest();
  now = run(pace, 125'000, 4, now);  // 1 Gbit/s
  CHECK(pace.bytes() == Pace::kLeast);
  pace.rest();
  run(pace, 12'500'000, 4, now);  // 100 Gbit/s
  CHECK(pace.bytes() == Pace::kMost);
}

TEST_CASE("the time until the first bytes have moved is not counted") {
  Pace pace;
  pace.count(0, TimePoint{});
  run(pace, 2'500'000, 4, TimePoint{} + milliseconds(100));
  CHECK(pace.bytes() == 9 * Pace::kLeast);
}

TEST_CASE("idle time is not counted, and a moment says nothing") {
  Pace pace;
  TimePoint now = run(pace, 2'500'000, 4, TimePoint{});
  CHECK(pace.bytes() == 9 * Pace::kLeast);
  pace.rest();
  now += std::chrono::seconds(5);
  pace.count(8, now);
  pace.count(8, now + milliseconds(30));
  pace.rest();
  CHECK(pace.bytes() == 9 * Pace::kLeast);
  run(pace, 2'500'000, 4, now + std::chrono::seconds(5));
  CHECK(pace.bytes() == 9 * Pace::kLeast);
}

}  // namespace
}  // namespace hetccl::onesided
