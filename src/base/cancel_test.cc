#include "base/cancel.h"

#include <doctest/doctest.h>
#include <poll.h>

#include "fake/patience.h"
#include "fake/thread.h"

namespace hetccl {
namespace {

bool readable(const Cancel& cancel, int timeout_ms) {
  pollfd entry{cancel.fd(), POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

TEST_CASE("the first reason stays, and whoever polls wakes") {
  const auto cancel = Cancel::create().value();
  CHECK(!cancel->is_set());
  CHECK(cancel->reason().ok());
  CHECK(!readable(*cancel, 0));
  CHECK(WaitLimit(5, cancel.get()).cancelled().ok());
  fake::Thread setter([&] { cancel->set(error(ErrorCode::Aborted, "first")); });
  CHECK(readable(*cancel, static_cast<int>(fake::kHangMs)));
  setter.join();
  cancel->set(error(ErrorCode::Timeout, "second"));
  CHECK(cancel->is_set());
  CHECK(cancel->reason().message() == "first");
  CHECK(WaitLimit(5, cancel.get()).cancelled().code() == ErrorCode::Aborted);
  CHECK(readable(*cancel, 0));
  CHECK(WaitLimit(5).cancelled().ok());
}

}  // namespace
}  // namespace hetccl
