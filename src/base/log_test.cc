#include "base/log.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace hetccl {
namespace {

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

TEST_CASE("lines carry level and rank, and quieter levels are left out") {
  const Log log{LogLevel::Info, 3};
  CHECK(stderr_of([&] { log.warn("lost %d of %s", 2, "them"); }) ==
        "hetccl [rank 3] warn: lost 2 of them\n");
  CHECK(stderr_of([&] { log.debug("unseen"); }).empty());
  CHECK(stderr_of([] { Log{}.error("no rank yet"); }) == "hetccl error: no rank yet\n");
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
