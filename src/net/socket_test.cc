#include "net/socket.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "fake/patience.h"
#include "fake/thread.h"

namespace hetccl::net {
namespace {

using std::chrono::milliseconds;

TimePoint after(int64_t ms) {
  return steady_clock().now() + milliseconds(ms);
}

SocketAddress v4(const char* host, uint16_t port) {
  SocketAddress address;
  auto& in = reinterpret_cast<sockaddr_in&>(address.storage);
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  REQUIRE(::inet_pton(AF_INET, host, &in.sin_addr) == 1);
  return address;
}

SocketAddress v6(const char* host, uint16_t port) {
  SocketAddress address;
  auto& in = reinterpret_cast<sockaddr_in6&>(address.storage);
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(port);
  REQUIRE(::inet_pton(AF_INET6, host, &in.sin6_addr) == 1);
  return address;
}

Fd accept_within(const Listener& listener, int64_t ms) {
  for (const TimePoint deadline = after(ms); steady_clock().now() < deadline;) {
    auto accepted = accept(listener);
    REQUIRE(accepted.ok());
    if (accepted->valid()) return std::move(accepted).value();
    std::this_thread::sleep_for(milliseconds(1));
  }
  return Fd();
}

TEST_CASE("addresses survive encoding and print as users write them") {
  for (const SocketAddress& address : {v4("10.0.0.1", 4711), v6("::1", 4711), v6("fd00::7", 1)}) {
    uint8_t wire[SocketAddress::kEncodedBytes];
    address.encode(wire);
    auto back = SocketAddress::decode(wire);
    REQUIRE(back.ok());
    CHECK(back->text() == address.text());
    CHECK(back->length() == address.length());
  }
  CHECK(v4("10.0.0.1", 4711).text() == "10.0.0.1:4711");
  CHECK(v6("::1", 4711).text() == "[::1]:4711");
  uint8_t junk[SocketAddress::kEncodedBytes] = {9};
  CHECK(SocketAddress::decode(junk).status().code() == ErrorCode::InvalidArgument);
}

TEST_CASE("listen, connect, send and receive") {
  auto listener = listen(Config());
  REQUIRE_MESSAGE(listener.ok(), listener.status().message());
  CHECK(listener->port != 0);
  CHECK_FALSE(accept(*listener)->valid());
  auto dialled = connect({v4("127.0.0.1", listener->port)}, after(fake::kHangMs));
  REQUIRE_MESSAGE(dialled.ok(), dialled.status().message());
  Fd accepted = accept_within(*listener, fake::kHangMs);
  REQUIRE(accepted.valid());

  std::string sent(1 << 20, 'a'), received(sent.size(), 'b');
  fake::Thread sender([&] {
    CHECK(send_all(dialled->get(), sent.data(), sent.size(), after(fake::kHangMs)).ok());
  });
  CHECK(recv_all(accepted.get(), received.data(), received.size(), after(fake::kHangMs)).ok());
  sender.join();
  CHECK(received == sent);

  char byte = 0;
  CHECK(recv_all(accepted.get(), &byte, 1, after(30)).code() == ErrorCode::Timeout);
  dialled->reset();
  CHECK(recv_all(accepted.get(), &byte, 1, after(fake::kHangMs)).code() == ErrorCode::RemoteError);
  CHECK(send_all(accepted.get(), sent.data(), sent.size(), after(fake::kHangMs)).code() ==
        ErrorCode::RemoteError);
}

TEST_CASE("connect tries again while refused, and skips an address that does not answer") {
  Listener late;
  uint16_t port = 0;
  {
    auto first = listen(Config());
    REQUIRE(first.ok());
    port = first->port;
  }
  Config config;
  config.port_range = format("%u-%u", static_cast<unsigned>(port), static_cast<unsigned>(port));
  fake::Thread starter([&] {
    std::this_thread::sleep_for(milliseconds(60));
    auto again = listen(config);
    CHECK_MESSAGE(again.ok(), again.status().message());
    if (again.ok()) late = std::move(again).value();
  });
  // Nobody has an address of 192.0.2.0/24 (TEST-NET-1).
  auto fd = connect({v4("192.0.2.1", 9), v4("127.0.0.1", port)}, after(fake::kHangMs));
  starter.join();
  CHECK_MESSAGE(fd.ok(), fd.status().message());
}

TEST_CASE("connect's deadline names the addresses") {
  auto listener = listen(Config());
  REQUIRE(listener.ok());
  const SocketAddress nobody = v4("127.0.0.1", listener->port);
  listener->fd.reset();
  const TimePoint start = steady_clock().now();
  auto fd = connect({nobody}, after(80));
  CHECK(steady_clock().now() - start < fake::kHang);
  CHECK(fd.status().code() == ErrorCode::Timeout);
  CHECK(fd.status().message().find(nobody.text()) != std::string::npos);
  CHECK(connect({}, after(80)).status().code() == ErrorCode::InvalidArgument);
}

TEST_CASE("connect does not wait for its deadline where nobody listens any more") {
  const SocketAddress nobody = v4("127.0.0.1", 1);  // the system gives it to no other test
  const TimePoint start = steady_clock().now();
  const auto fd = connect({nobody}, after(2 * fake::kHangMs));
  CHECK(steady_clock().now() - start < fake::kHang);
  CHECK(fd.status().code() == ErrorCode::RemoteError);
  CHECK(fd.status().message().find("nobody listens at " + nobody.text()) != std::string::npos);
  CHECK(fd.status().message().find("loopback is this host") != std::string::npos);
}

TEST_CASE("loopback addresses are told from those that other hosts reach") {
  for (const char* own : {"127.0.0.1", "127.8.0.9"}) CHECK(v4(own, 1).is_loopback());
  for (const char* other : {"10.0.0.1", "126.0.0.1", "128.0.0.1"})
    CHECK_FALSE(v4(other, 1).is_loopback());
  for (const char* own : {"::1", "::ffff:127.0.0.1"}) CHECK(v6(own, 1).is_loopback());
  for (const char* other : {"fd00::1", "::ffff:10.0.0.1"}) CHECK_FALSE(v6(other, 1).is_loopback());
  CHECK(are_loopback({v4("127.0.0.1", 1), v4("127.0.0.2", 1)}));
  CHECK_FALSE(are_loopback({v4("127.0.0.1", 1), v4("10.0.0.1", 1)}));
}

TEST_CASE("a socket that is connected to itself is told from others") {
  auto listener = listen(Config());
  REQUIRE(listener.ok());
  auto other = connect({v4("127.0.0.1", listener->port)}, after(fake::kHangMs));
  REQUIRE(other.ok());
  CHECK_FALSE(is_own_peer(other->get()));
  listener->fd.reset();
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress self = v4("127.0.0.1", listener->port);
  const auto* name = reinterpret_cast<const sockaddr*>(&self.storage);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  REQUIRE(::bind(fd.get(), name, self.length()) == 0);
  REQUIRE(::connect(fd.get(), name, self.length()) == 0);
  CHECK(is_own_peer(fd.get()));
}

TEST_CASE("a port range is respected, named when used up, and checked") {
  auto probe = listen(Config());
  REQUIRE(probe.ok());
  Config config;
  const unsigned port = probe->port;
  config.port_range = format("%u-%u", port, port);
  auto taken = listen(config);
  CHECK(taken.status().code() == ErrorCode::SystemError);
  CHECK(taken.status().message().find("HETCCL_PORT_RANGE") != std::string::npos);
  CHECK(taken.status().message().find(
            "two ports for each rank on this host, those of other jobs included") !=
        std::string::npos);
  probe->fd.reset();
  auto now = listen(config);
  REQUIRE(now.ok());
  CHECK(now->port == port);
  for (const char* bad : {"5", "7-5", "a-b", "1-99999", "0-4", "1-2-3"}) {
    config.port_range = bad;
    CHECK(listen(config).status().code() == ErrorCode::InvalidArgument);
  }
}

TEST_CASE("with HETCCL_SOCKET_IFNAME a port is open at the addresses of those interfaces alone") {
  Config config;
  config.socket_ifname = "=lo";
  for (const char* range : {"", "23100-23199"}) {
    config.port_range = range;
    auto listener = listen(config);
    REQUIRE_MESSAGE(listener.ok(), listener.status().message());
    const auto named = connect({v4("127.0.0.1", listener->port)}, after(60'000));
    CHECK(named.ok());
    pollfd entry{listener.value().fd.get(), POLLIN, 0};
    CHECK(::poll(&entry, 1, 60'000) == 1);
    CHECK(accept(listener.value())->valid());
    CHECK_FALSE(accept(listener.value())->valid());
    // It reaches this host, too, but is no address of the interface.
    const auto other = connect({v4("127.0.0.2", listener->port)}, after(100));
    CHECK(other.status().message().find("Connection refused") != std::string::npos);
  }
}

TEST_CASE("interfaces follow NCCL's syntax") {
  Config config;
  auto all = interfaces(config);
  REQUIRE_MESSAGE(all.ok(), all.status().message());
  const bool loopback_only = all->front().loopback;
  for (const Interface& i : *all) CHECK(i.loopback == loopback_only);

  config.socket_ifname = "=lo";
  auto lo = interfaces(config);
  REQUIRE_MESSAGE(lo.ok(), lo.status().message());
  CHECK(std::all_of(lo->begin(), lo->end(), [](const Interface& i) { return i.name == "lo"; }));
  config.socket_ifname = "l";
  CHECK(interfaces(config).ok());
  config.socket_ifname = "=l";
  auto none = interfaces(config);
  CHECK(none.status().code() == ErrorCode::InvalidArgument);
  CHECK(none.status().message().find("HETCCL_SOCKET_IFNAME") != std::string::npos);
  CHECK(none.status().message().find("lo") != std::string::npos);
  config.socket_ifname = "^lo";
  auto others = interfaces(config);
  if (others.ok())
    for (const Interface& i : *others) CHECK_FALSE(i.loopback);
  config.socket_ifname = "nosuch,lo";
  config.socket_family = "inet";
  auto inet = interfaces(config);
  REQUIRE(inet.ok());
  CHECK(inet->front().address.storage.ss_family == AF_INET);
}

}  // namespace
}  // namespace hetccl::net
