#include "base/status.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <memory>

namespace hetccl {
namespace {

Status fail_if(bool fail) {
  HETCCL_TRY(fail ? error(ErrorCode::Timeout, "after %d ms", 7) : Status());
  return error(ErrorCode::Aborted, "reached the end");
}

Result<int> half(int value) {
  if (value % 2) return error(ErrorCode::InvalidArgument, "%d is odd", value);
  return value / 2;
}

Result<int> quarter(int value) {
  HETCCL_ASSIGN(const int first, half(value));
  HETCCL_ASSIGN(const int second, half(first));
  return second;
}

TEST_CASE("success costs one null pointer and stays success") {
  const Status status;
  CHECK(status.ok());
  CHECK(status.code() == ErrorCode::Ok);
  CHECK(status.message().empty());
  CHECK(status.with("anything").ok());
  CHECK(sizeof(Status) == sizeof(void*));
  CHECK(Status(ErrorCode::Ok, "ignored").ok());
}

TEST_CASE("context is put in front, copies are deep, moves leave success") {
  const Status status = error(ErrorCode::RemoteError, "rank %d left", 3).with("connecting");
  CHECK(status.code() == ErrorCode::RemoteError);
  CHECK(status.message() == "connecting: rank 3 left");
  Status copy = status;
  CHECK(copy.message() == status.message());
  Status& alias = copy;
  copy = alias;
  CHECK(copy.message() == status.message());
  const Status moved = std::move(copy);
  CHECK(moved.message() == status.message());
}

TEST_CASE("the macros return the first failure and unwrap values") {
  CHECK(fail_if(true).message() == "after 7 ms");
  CHECK(fail_if(false).message() == "reached the end");
  CHECK(quarter(12).value() == 3);
  CHECK(quarter(6).status().message() == "3 is odd");
  Result<std::unique_ptr<int>> owned(std::make_unique<int>(5));
  const std::unique_ptr<int> taken = std::move(owned).value();
  CHECK(*taken == 5);
}

TEST_CASE("system errors carry errno's text, and long messages are not cut") {
  const Status status = system_error("opening x", ENOENT);
  CHECK(status.code() == ErrorCode::SystemError);
  CHECK(status.message() == "opening x: No such file or directory");
  const std::string long_text(10'000, 'x');
  CHECK(format("%s!", long_text.c_str()) == long_text + "!");
}

}  // namespace
}  // namespace hetccl
