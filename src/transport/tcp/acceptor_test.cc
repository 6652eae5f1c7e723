// An acceptor with little room for channels that peers dialled and this process has not taken.
#include "transport/tcp/acceptor.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "fake/patience.h"
#include "fake/thread.h"

namespace hetccl::transport::tcp {
namespace {

using std::chrono::seconds;

constexpr uint64_t kCommunicator = 7;
constexpr int kSelf = 0;

TimePoint soon() {
  return steady_clock().now() + seconds(60);
}

struct Fixture {
  explicit Fixture(size_t max_admitted, const net::Encryption& encryption = nullptr) {
    Config config;
    config.socket_family = "inet";
    auto listener = net::listen(config);
    REQUIRE(listener.ok());
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address = address.with_port(listener->port);
    auto started = Acceptor::start(std::move(listener).value(), 1, encryption, Log{LogLevel::Error},
                                   max_admitted);
    REQUIRE(started.ok());
    acceptor = std::move(started).value();
  }
  /// Dials as that peer until it is accepted, as ranks do, and sends the peer's number.
  net::Wire dial(int peer) const {
    const net::Hello hello{kPurpose, 0, kCommunicator, peer, kSelf};
    for (const TimePoint deadline = soon(); steady_clock().now() < deadline;) {
      auto fd = net::connect({address}, deadline);
      if (!fd.ok()) continue;
      auto wire =
          net::dial_handshake(std::move(fd).value(), hello, net::Key{secret}, nullptr, deadline);
      if (!wire.ok()) continue;
      CHECK(net::send_all(wire->fd(), &peer, sizeof peer, deadline).ok());
      return std::move(wire).value();
    }
    return {};
  }
  /// Takes that peer's channel. Returns whether it lives and is the peer's.
  bool take(int peer) const {
    const PeerId id{kCommunicator, kSelf, peer};
    Acceptor::Expectation expectation(*acceptor, id, secret);
    for (const TimePoint deadline = soon(); steady_clock().now() < deadline;) {
      pollfd entry{expectation.fd(), POLLIN, 0};
      ::poll(&entry, 1, 1000);
      auto wires = expectation.take();
      if (!wires) continue;
      int from = -1;
      return net::recv_all(wires->front().fd(), &from, sizeof from, deadline).ok() && from == peer;
    }
    return false;
  }

  const net::Secret secret = net::random_secret();
  net::SocketAddress address;
  std::unique_ptr<Acceptor> acceptor;
};

TEST_CASE("peers that there is no room for wait, and none that was accepted is dropped") {
  constexpr size_t kRoom = 2;
  constexpr int kPeers = 6;
  Fixture f(kRoom);
  const PeerId other{kCommunicator, kSelf, kPeers + 1};
  const Acceptor::Expectation known(*f.acceptor, other, f.secret);  // makes the communicator's
                                                                    // secret known
  std::vector<net::Wire> dialled(kPeers + 1);
  std::atomic<size_t> accepted{0};
  std::vector<fake::Thread> peers;
  for (int peer = 1; peer <= kPeers; ++peer)
    peers.emplace_back([&, peer] {
      dialled[static_cast<size_t>(peer)] = f.dial(peer);
      ++accepted;
    });
  for (const TimePoint end = soon(); accepted < kRoom && steady_clock().now() < end;)
    std::this_thread::yield();
  for (int peer = 1; peer <= kPeers; ++peer) CHECK(f.take(peer));
  for (fake::Thread& peer : peers) peer.join();
}

TEST_CASE("channels that their peers have closed, or that are forgotten, leave their places") {
  Fixture f(1);
  const PeerId other{kCommunicator, kSelf, 9};
  const Acceptor::Expectation known(*f.acceptor, other, f.secret);
  CHECK(f.dial(1).valid());  // and closes
  const net::Wire second = f.dial(2);
  CHECK(second.valid());
  f.acceptor->forget(kCommunicator, kSelf);
  CHECK(f.dial(3).valid());
}

TEST_CASE("a channel is forgotten from the moment at which its peer may count on it") {
  Fixture f(1, net::TlsContext::create().value());
  const PeerId other{kCommunicator, kSelf, 9};
  const Acceptor::Expectation known(*f.acceptor, other, f.secret);
  auto fd = net::connect({f.address}, soon());
  REQUIRE(fd.ok());
  net::DialHandshake peer({kPurpose, 0, kCommunicator, 1, kSelf}, net::Key{f.secret},
                          net::TlsContext::create().value());
  const auto wait_for = [&](short events) {
    pollfd entry{fd->get(), static_cast<short>(events | POLLRDHUP), 0};
    REQUIRE(::poll(&entry, 1, fake::kHangMs) == 1);
    return entry.revents;
  };
  // Reads no further than its acceptance, so that the encryption has not begun.
  auto state = net::HandshakeState::InProgress;
  while (state == net::HandshakeState::InProgress) {
    state = peer.advance(fd->get());
    if (state == net::HandshakeState::InProgress) wait_for(peer.events());
    if (peer.proven()) break;
  }
  f.acceptor->forget(kCommunicator, kSelf);
  while (state == net::HandshakeState::InProgress) {
    state = peer.advance(fd->get());
    if (state == net::HandshakeState::InProgress) wait_for(peer.events());
  }
  while ((wait_for(0) & POLLRDHUP) == 0) {
  }
}

}  // namespace
}  // namespace hetccl::transport::tcp
