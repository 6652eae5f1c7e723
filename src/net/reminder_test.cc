#include "net/reminder.h"

#include <doctest/doctest.h>

#include <vector>

#include "fake/manual_clock.h"

namespace hetccl::net {
namespace {

TEST_CASE("a reminder is due after ten seconds, and again every ten") {
  fake::ManualClock clock;
  Reminder reminder(clock);
  const TimePoint begin = clock.time;
  CHECK(reminder.next() == begin + std::chrono::seconds(10));
  std::vector<int64_t> due;
  for (int tenth = 0; tenth < 350; ++tenth) {
    clock.time = begin + std::chrono::milliseconds(100) * tenth;
    if (reminder.is_due()) due.push_back(reminder.seconds());
  }
  CHECK(due == std::vector<int64_t>{10, 20, 30});
}

}  // namespace
}  // namespace hetccl::net
