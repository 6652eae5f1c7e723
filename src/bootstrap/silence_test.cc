#include "bootstrap/silence.h"

#include <doctest/doctest.h>

namespace hetccl::bootstrap {
namespace {

using std::chrono::milliseconds;

TEST_CASE("silence adds up between checks and ends with a word") {
  const TimePoint start{};
  Silence silence(start);
  silence.check(start + milliseconds(100), start + milliseconds(50), milliseconds(100));
  CHECK(silence.length() == milliseconds(50));
  silence.check(start + milliseconds(200), start + milliseconds(50), milliseconds(100));
  silence.check(start + milliseconds(300), start + milliseconds(50), milliseconds(100));
  CHECK(silence.length() == milliseconds(250));
  silence.check(start + milliseconds(400), start + milliseconds(301), milliseconds(100));
  CHECK(silence.length() == milliseconds(99));
  silence.forget();
  CHECK(silence.length() == milliseconds(0));
}

TEST_CASE("a stall of the listener is not the speaker's silence") {
  const TimePoint start{};
  Silence silence(start);
  silence.check(start + std::chrono::hours(1), start - milliseconds(1), milliseconds(100));
  CHECK(silence.length() == milliseconds(100));
}

}  // namespace
}  // namespace hetccl::bootstrap
