#include "net/refusals.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

namespace hetccl::net {
namespace {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return time; }
  TimePoint time{std::chrono::hours(1)};
};

std::string stderr_of(const std::function<void()>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  body();
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(ends[1]);
  std::string text(16'384, '\0');
  const ssize_t length = read(ends[0], text.data(), text.size());
  close(ends[0]);
  text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return text;
}

TEST_CASE("a flood of refusals is a few lines, and the next one counts the rest") {
  ManualClock clock;
  Refusals refusals("the coordinator", Log{}, clock);
  const std::string flood = stderr_of([&] {
    for (int i = 0; i < 1000; ++i) refusals.add("10.0.0.1:" + std::to_string(i), "junk");
  });
  CHECK(std::count(flood.begin(), flood.end(), '\n') == 5);
  CHECK(flood.find("the coordinator refused a connection from 10.0.0.1:0: junk\n") !=
        std::string::npos);
  clock.time += std::chrono::seconds(11);
  CHECK(stderr_of([&] { refusals.add("10.0.0.2:7", "silence"); }) ==
        "hetccl warn: the coordinator refused a connection from 10.0.0.2:7: "
        "995 more were refused and not shown; silence\n");
  CHECK(stderr_of([&] { refusals.add("10.0.0.2:8", "silence"); }) ==
        "hetccl warn: the coordinator refused a connection from 10.0.0.2:8: silence\n");
}

}  // namespace
}  // namespace hetccl::net
