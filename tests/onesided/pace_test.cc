// Turns follow the speed of the link, idle time does not count, and distance costs no speed.
#include "onesided/pace.h"

#include <doctest/doctest.h>

#include <deque>

namespace hetccl::onesided {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Lets a busy link move `bytes_a_ms` for `n` milliseconds from `now` on, and returns the end.
TimePoint run(Pace& pace, size_t bytes_a_ms, int n, TimePoint now) {
  for (int i = 0; i <= n; ++i, now += milliseconds(1)) pace.count(i == 0 ? 0 : bytes_a_ms, now);
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

// A link that moves `speed` bytes a millisecond; messages complete `delay` after they have left.
class DistantLink {
 public:
  DistantLink(int speed, milliseconds delay) : speed_(speed), delay_(delay) {}

  /// Keeps the link as busy as `pace` has it, for `time`. Returns the bytes that have left.
  size_t run(Pace& pace, milliseconds time) {
    size_t done = 0;
    for (const TimePoint end = now_ + time; now_ < end; now_ += kStep) {
      while (posted_ < pace.ahead()) post(pace.bytes());
      size_t left = 0;
      for (; !messages_.empty() && messages_.front().completes <= now_; messages_.pop_front()) {
        pace.note_delay(now_ - messages_.front().posted);
        left += messages_.front().bytes;
      }
      posted_ -= left;
      done += left;
      pace.count(left, now_);
    }
    return done;
  }
  void post(size_t bytes) {
    free_at_ = std::max(free_at_, now_) + microseconds(static_cast<int64_t>(1000 * bytes) / speed_);
    messages_.push_back({bytes, now_, free_at_ + delay_});
    posted_ += bytes;
  }
  /// Returns how long a message that is posted now waits for those before it.
  [[nodiscard]] Duration queue() const { return free_at_ - now_; }

 private:
  struct Message {
    size_t bytes = 0;
    TimePoint posted, completes;
  };
  static constexpr microseconds kStep{100};
  const int speed_;
  const milliseconds delay_;
  std::deque<Message> messages_;
  size_t posted_ = 0;
  TimePoint now_{}, free_at_{};
};

TEST_CASE("a distant peer's completions do not slow the link, nor do turns pile up before it") {
  for (const int speed : {125'000, 1'250'000, 4'000'000}) {
    for (const int delay : {0, 1, 5, 20, 30}) {
      CAPTURE(speed);
      CAPTURE(delay);
      Pace pace;
      DistantLink link(speed, milliseconds(delay));
      link.post(100);  // a frame, before the first long message
      link.run(pace, milliseconds(1000));
      CHECK(static_cast<double>(link.run(pace, milliseconds(1000))) > .95 * 1000.0 * speed);
      // Three turns of 4 ms, or of the least.
      const Duration turn =
          std::max<Duration>(Pace::kTurn, microseconds(int64_t{1000 * Pace::kLeast} / speed));
      CHECK(link.queue() < 3 * turn + milliseconds(2));
    }
  }
}

}  // namespace
}  // namespace hetccl::onesided
