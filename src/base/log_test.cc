#include "base/log.h"

#include <doctest/doctest.h>

#include <string>

#include "fake/captured_stderr.h"

namespace hetccl {
namespace {

using fake::stderr_of;

TEST_CASE("lines carry level and rank, and quieter levels are left out") {
  const Log log{LogLevel::Info, 3};
  CHECK(stderr_of([&] { log.warn("lost %d of %s", 2, "them"); }) ==
        "hetccl [rank 3] warn: lost 2 of them\n");
  CHECK(stderr_of([&] { log.debug("unseen"); }).empty());
  CHECK(stderr_of([] { Log{}.error("no rank yet"); }) == "hetccl error: no rank yet\n");
}

TEST_CASE("control characters do not reach the terminal, and a line is one line") {
  CHECK(stderr_of([] { Log{}.error("lost: %s", "\x1b[2J\nhetccl error: forged\r Zürich"); }) ==
        "hetccl error: lost: \\x1b[2J\\nhetccl error: forged\\x0d Zürich\n");
}

TEST_CASE("a line is bounded") {
  const std::string text(100'000, 'x');
  const std::string line = stderr_of([&] { Log{}.error("%s", text.c_str()); });
  CHECK(line.size() == 4096);
  CHECK(line.back() == '\n');
}

TEST_CASE("levels parse in any case") {
  CHECK(parse_log_level("INFO") == LogLevel::Info);
  CHECK(parse_log_level("error") == LogLevel::Error);
  CHECK_FALSE(parse_log_level("loud").has_value());
  CHECK_FALSE(parse_log_level("").has_value());
}

}  // namespace
}  // namespace hetccl
