#include "base/waker.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "fake/patience.h"

using namespace hetccl;

namespace {

bool readable(const Waker& waker, int timeout_ms = 0) {
  pollfd entry{waker.fd(), POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

}  // namespace

TEST_CASE("a ring makes the waker readable until drained") {
  auto waker = Waker::create();
  REQUIRE(waker.ok());
  CHECK_FALSE(readable(**waker));
  for (int i = 0; i < 100'000; ++i) waker.value()->ring();  // more than the pipe holds
  CHECK(readable(**waker));
  waker.value()->drain();
  CHECK_FALSE(readable(**waker));
}

TEST_CASE("another process rings through the address") {
  auto waker = Waker::create();
  REQUIRE(waker.ok());
  const WakerAddress address = waker.value()->address();
  const pid_t child = fork();
  if (child == 0) {
    auto remote = RemoteWaker::open(address);
    if (!remote.ok()) _exit(1);
    remote->ring();
    _exit(0);
  }
  CHECK(readable(**waker, static_cast<int>(fake::kHangMs)));
  int state = -1;
  REQUIRE(waitpid(child, &state, 0) == child);
  CHECK(state == 0);
}

TEST_CASE("ringing a waker that is gone does nothing, and no signal is raised") {
  auto waker = Waker::create();
  REQUIRE(waker.ok());
  auto remote = RemoteWaker::open(waker.value()->address());
  REQUIRE(remote.ok());
  waker.value().reset();
  remote->ring();
  const RemoteWaker moved = std::move(remote.value());
  moved.ring();
  RemoteWaker().ring();
}

TEST_CASE("an address that names no waker is refused") {
  CHECK(RemoteWaker::open({0x3fffffff, 3}).status().code() == ErrorCode::SystemError);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  CHECK(RemoteWaker::open({getpid(), null}).status().code() == ErrorCode::SystemError);
  close(null);
}
