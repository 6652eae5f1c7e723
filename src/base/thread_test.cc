#include "base/thread.h"

#include <doctest/doctest.h>

#include "base/crew.h"
#include "fake/no_threads.h"

namespace hetccl {

TEST_CASE("a thread that cannot be started is an error with a remedy") {
  const fake::NoThreads none;
  const auto thread = start_thread("hetccl-test", [] {});
  CHECK(thread.status().code() == Code::SystemError);
  CHECK(thread.status().message().find("cannot start thread hetccl-test") != std::string::npos);
  CHECK(thread.status().message().find("ulimit -u") != std::string::npos);
}

TEST_CASE("a crew without threads copies alone") {
  const fake::NoThreads none;
  Crew crew(4);
  const std::vector<std::byte> source(size_t{4} << 20U, std::byte{7});
  std::vector<std::byte> target(source.size());
  crew.copy(target.data(), source.data(), source.size());
  CHECK(target == source);
  CHECK(crew.threads() == 1);
}

}  // namespace hetccl
