#include "net/path.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "net/socket.h"

namespace hetccl::net {
namespace {

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t bytes = sizeof value;
  ::getsockopt(fd, level, name, &value, &bytes);
  return value;
}

TEST_CASE("a host that answers no probe is lost within about the time of liveness") {
  const Fd fd(::socket(AF_INET, SOCK_STREAM, 0));
  for (const int64_t liveness_ms : {100, 1'000, 5'000, 60'000, 86'400'000}) {
    CAPTURE(liveness_ms);
    keep_alive(fd.get(), std::chrono::milliseconds(liveness_ms));
    CHECK(option(fd.get(), SOL_SOCKET, SO_KEEPALIVE) == 1);
    const int64_t seconds = option(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE) +
                            int64_t{option(fd.get(), IPPROTO_TCP, TCP_KEEPINTVL)} *
                                option(fd.get(), IPPROTO_TCP, TCP_KEEPCNT);
    CHECK(seconds >= std::min<int64_t>(liveness_ms / 1000, 80'000));
    CHECK(seconds <= std::max<int64_t>(liveness_ms / 1000, 4));
  }
}

TEST_CASE("a reader that is late is no silence of its host") {
  Config config;
  config.socket_family = "inet";
  const Listener listener = std::move(listen(config)).value();
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const TimePoint deadline = steady_clock().now() + std::chrono::seconds(60);
  const Fd dialled = std::move(connect({address.with_port(listener.port)}, deadline)).value();
  std::vector<char> much(1 << 20);
  // Fills the window, which the kernel then probes.
  while (::send(dialled.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  Path path;
  const TimePoint now = steady_clock().now();
  CHECK(path.silence(dialled.get(), now) == Duration(0));
  CHECK(path.silence(dialled.get(), now + std::chrono::hours(1)) == Duration(0));
}

}  // namespace
}  // namespace hetccl::net
