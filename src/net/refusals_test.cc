#include "net/refusals.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "fake/captured_stderr.h"
#include "fake/manual_clock.h"

namespace hetccl::net {
namespace {

using fake::stderr_of;

TEST_CASE("a flood of refusals is a few lines, and the next one counts the rest") {
  fake::ManualClock clock;
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
