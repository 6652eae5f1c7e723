#include "adaptor/calls.h"

#include <doctest/doctest.h>

#include <new>

#include "fake/no_threads.h"

namespace hetccl::adaptor {
namespace {

TEST_CASE("a call of an adaptor that gets no thread, or no memory, is an error") {
  const auto seven = [] { return Result<int>(7); };
  {
    const fake::NoThreads none;
    const auto made = run_within<int>(60'000, "score", seven);
    CHECK(made.status().code() == ErrorCode::SystemError);
    CHECK(made.status().message().find("score: cannot start thread") == 0);
  }
  const auto made =
      run_within<int>(60'000, "score", []() -> Result<int> { throw std::bad_alloc(); });
  CHECK(made.status().message() == "out of memory");
  CHECK(run_within<int>(60'000, "score", seven).value() == 7);
}

}  // namespace
}  // namespace hetccl::adaptor
