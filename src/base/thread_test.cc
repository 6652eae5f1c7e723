#include "base/thread.h"

#include <doctest/doctest.h>

#include "fake/no_threads.h"

namespace hetccl {

TEST_CASE("a thread that cannot be started is an error with a remedy") {
  const fake::NoThreads none;
  const auto thread = start_thread("hetccl-test", [] {});
  CHECK(thread.status().code() == ErrorCode::SystemError);
  CHECK(thread.status().message().find("cannot start thread hetccl-test") != std::string::npos);
  CHECK(thread.status().message().find("ulimit -u") != std::string::npos);
}

}  // namespace hetccl
