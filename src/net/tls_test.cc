// Wires with TLS, over a socket pair that the test can read, cut and falsify.
#include "net/tls.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>

#include "net/auth.h"
#include "net/wire.h"

namespace hetccl::net {
namespace {

using Bytes = std::vector<uint8_t>;

Encryption context() {
  auto made = TlsContext::create();
  REQUIRE_MESSAGE(made.ok(), made.status().message());
  return std::move(made).value();
}

Tls::Key key(uint8_t seed) {
  Tls::Key key;
  key.fill(seed);
  return key;
}

std::array<Fd, 2> socket_pair() {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

// Two ends whose sockets lead to a man in the middle, who carries their data.
struct Ends {
  explicit Ends(uint64_t rekey_bytes = Tls::kRekeyBytes) : Ends(key(1), key(1), rekey_bytes) {}
  Ends(const Tls::Key& first, const Tls::Key& second, uint64_t rekey_bytes = Tls::kRekeyBytes) {
    for (int i = 0; i < 2; ++i) {
      auto pair = socket_pair();
      fds[i] = std::move(pair[0]);
      middle[i] = std::move(pair[1]);
      auto made = Tls::create(*shared, i == 0 ? Tls::Side::Dialer : Tls::Side::Listener,
                              i == 0 ? first : second, rekey_bytes);
      REQUIRE(made.ok());
      tls[i] = std::move(made).value();
    }
  }
  // Carries data that waits in the middle, at most `limit` bytes each way, and keeps a copy.
  void carry(size_t limit = SIZE_MAX) {
    for (int from = 0; from < 2; ++from) {
      uint8_t bytes[4096];
      for (size_t carried = 0; carried < limit;) {
        const size_t ask = std::min(sizeof bytes, limit - carried);
        const ssize_t got = ::recv(middle[from].get(), bytes, ask, MSG_DONTWAIT);
        if (got <= 0) break;
        const auto n = static_cast<size_t>(got);
        if (falsify) bytes[n / 2] ^= 0x20;
        seen.insert(seen.end(), bytes, bytes + n);
        waiting[from].insert(waiting[from].end(), bytes, bytes + n);
        carried += n;
      }
      const ssize_t sent =
          ::send(middle[1 - from].get(), waiting[from].data(), waiting[from].size(), MSG_NOSIGNAL);
      if (sent > 0) waiting[from].erase(waiting[from].begin(), waiting[from].begin() + sent);
    }
  }
  // Returns true when both ends are done.
  bool advance_handshake(size_t bytes_at_once = SIZE_MAX) {
    Io states[2] = {Io::Blocked, Io::Blocked};
    for (int round = 0; round < 20'000; ++round) {
      for (int i = 0; i < 2; ++i)
        if (states[i] == Io::Blocked) states[i] = tls[i]->handshake(fds[i].get());
      if (states[0] == Io::Failed || states[1] == Io::Failed) return false;
      if (states[0] == Io::Moved && states[1] == Io::Moved) return true;
      carry(bytes_at_once);
    }
    return false;
  }
  void become_wires() {
    REQUIRE(advance_handshake());
    for (int i = 0; i < 2; ++i) wires[i] = Wire(std::move(fds[i]), std::move(tls[i]));
  }
  // Sends `sent` from the first wire to the second, in parts as they fit.
  Bytes transfer(const Bytes& sent) {
    Bytes received(sent.size());
    size_t written = 0, got = 0;
    for (int round = 0; round < 200'000 && got < sent.size(); ++round) {
      const size_t half = (sent.size() - written) / 3;
      const iovec from[2] = {
          {const_cast<uint8_t*>(sent.data()) + written, half},
          {const_cast<uint8_t*>(sent.data()) + written + half, sent.size() - written - half}};
      size_t n = 0;
      if (written < sent.size()) {
        if (wires[0].write(from, &n) == Io::Failed) return {};
        written += n;
      }
      carry(30'000);
      const iovec into{received.data() + got, received.size() - got};
      if (wires[1].read({&into, 1}, &n) == Io::Failed) return {};
      got += n;
    }
    return received;
  }

  Encryption shared = context();
  Fd fds[2], middle[2];
  std::unique_ptr<Tls> tls[2];
  Wire wires[2];
  Bytes seen, waiting[2];
  bool falsify = false;
};

Bytes counting(size_t bytes) {
  Bytes data(bytes);
  std::iota(data.begin(), data.end(), uint8_t{0});
  return data;
}

bool contains(const Bytes& all, const Bytes& part) {
  return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

TEST_CASE("what is written arrives, whatever the sizes, and is not seen on the way") {
  Ends ends;
  ends.become_wires();
  CHECK(ends.wires[0].encrypted());
  for (const size_t bytes : {1UL, 80UL, 16'384UL, 100'000UL, 3'000'000UL}) {
    const Bytes sent = counting(bytes);
    CHECK(ends.transfer(sent) == sent);
  }
  CHECK(ends.seen.size() > 3'000'000);
  CHECK_FALSE(contains(ends.seen, counting(32)));
}

TEST_CASE("a handshake that comes byte by byte succeeds; junk and another key do not") {
  Ends slow;
  CHECK(slow.advance_handshake(1));
  Ends different(key(1), key(2));
  CHECK_FALSE(different.advance_handshake());
  Ends falsified;
  falsified.falsify = true;
  CHECK_FALSE(falsified.advance_handshake());

  for (const uint8_t junk : {uint8_t{0}, uint8_t{0x16}, uint8_t{0xff}}) {
    Ends ends;
    const Bytes bytes(100'000, junk);
    REQUIRE(::send(ends.middle[1].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0);
    Io state = Io::Blocked;
    for (int i = 0; i < 1000 && state == Io::Blocked; ++i)
      state = ends.tls[1]->handshake(ends.fds[1].get());
    CHECK(state == Io::Failed);
    CHECK_FALSE(ends.tls[1]->failure().empty());
  }
}

TEST_CASE("a handshake that is cut, at any byte, fails and does not hang") {
  Ends whole;
  REQUIRE(whole.advance_handshake());
  for (size_t cut = 0; cut < 400; cut += 7) {
    Ends ends;
    CHECK(ends.tls[0]->handshake(ends.fds[0].get()) == Io::Blocked);
    Bytes hello(4096);
    const ssize_t got = ::recv(ends.middle[0].get(), hello.data(), hello.size(), MSG_DONTWAIT);
    REQUIRE(got > 0);
    const size_t some = std::min(cut, static_cast<size_t>(got) - 1);
    if (some > 0) REQUIRE(::send(ends.middle[1].get(), hello.data(), some, MSG_NOSIGNAL) > 0);
    ends.middle[1].reset();
    CHECK(ends.tls[1]->handshake(ends.fds[1].get()) == Io::Failed);
  }
}

TEST_CASE("an altered byte is a failure that stays, and no byte of it is handed out") {
  Ends ends;
  ends.become_wires();
  ends.falsify = true;
  const Bytes sent = counting(1000);
  const iovec from{const_cast<uint8_t*>(sent.data()), sent.size()};
  size_t n = 0;
  REQUIRE(ends.wires[0].write({&from, 1}, &n) == Io::Moved);
  ends.carry();
  Bytes received(1000);
  const iovec into{received.data(), received.size()};
  for (int i = 0; i < 2; ++i) {
    CHECK(ends.wires[1].read({&into, 1}, &n) == Io::Failed);
    CHECK(n == 0);
    CHECK(ends.wires[1].failure().find("altered") != std::string::npos);
  }
  CHECK(received == Bytes(1000));
}

TEST_CASE("a full socket blocks; what was offered is counted once it is in the kernel") {
  Ends ends;
  ends.become_wires();
  const Bytes sent = counting(4'000'000);
  size_t written = 0, n = 0;
  for (;;) {
    const iovec from{const_cast<uint8_t*>(sent.data()) + written, sent.size() - written};
    const Io result = ends.wires[0].write({&from, 1}, &n);
    REQUIRE(result != Io::Failed);
    written += n;
    if (result == Io::Blocked) break;
  }
  CHECK(written < sent.size());
  // All written data arrives, though the sender makes no further call.
  ends.wires[0].reset();
  size_t got = 0;
  Bytes received(sent.size());
  for (Io state = Io::Moved; state != Io::Closed;) {
    ends.carry();
    if (ends.waiting[0].empty()) ::shutdown(ends.middle[1].get(), SHUT_WR);
    const iovec into{received.data() + got, received.size() - got};
    state = ends.wires[1].read({&into, 1}, &n);
    REQUIRE(state != Io::Failed);
    got += n;
  }
  CHECK(got >= written);
  CHECK(std::equal(received.begin(), received.begin() + static_cast<ptrdiff_t>(got), sent.begin()));
}

TEST_CASE("what waits in the process is pending, and can be read without the socket") {
  Ends ends;
  ends.become_wires();
  const Bytes sent = counting(50'000);
  const iovec from{const_cast<uint8_t*>(sent.data()), sent.size()};
  size_t n = 0;
  REQUIRE(ends.wires[0].write({&from, 1}, &n) == Io::Moved);
  REQUIRE(n == sent.size());
  ends.carry();
  CHECK_FALSE(ends.wires[1].pending());
  Bytes received(sent.size());
  iovec into{received.data(), 10};
  REQUIRE(ends.wires[1].read({&into, 1}, &n) == Io::Moved);
  REQUIRE(n == 10);
  CHECK(ends.wires[1].pending());
  size_t got = 10;
  for (;;) {
    into = {received.data() + got, received.size() - got};
    if (into.iov_len == 0 || ends.wires[1].read_pending({&into, 1}, &n) != Io::Moved) break;
    got += n;
  }
  CHECK(got > 10);
  if (got == sent.size()) CHECK_FALSE(ends.wires[1].pending());
}

TEST_CASE("new keys are made in time, and nothing is lost over it") {
  Ends ends(/*rekey_bytes=*/10'000);
  ends.become_wires();
  const Bytes sent = counting(500'000);
  CHECK(ends.transfer(sent) == sent);
}

TEST_CASE("a plain wire carries bytes as they are") {
  auto pair = socket_pair();
  Wire wire(std::move(pair[0]));
  CHECK_FALSE(wire.encrypted());
  const Bytes sent = counting(100);
  const iovec parts[2] = {{const_cast<uint8_t*>(sent.data()), 60},
                          {const_cast<uint8_t*>(sent.data()) + 60, 40}};
  size_t n = 0;
  CHECK(wire.write(parts, &n) == Io::Moved);
  CHECK(n == 100);
  Bytes received(100);
  CHECK(::recv(pair[1].get(), received.data(), 100, 0) == 100);
  CHECK(received == sent);
  const iovec into{received.data(), 100};
  CHECK(wire.read({&into, 1}, &n) == Io::Blocked);
  CHECK(::send(pair[1].get(), "abc", 3, 0) == 3);
  CHECK(wire.read({&into, 1}, &n) == Io::Moved);
  CHECK(n == 3);
  pair[1].reset();
  CHECK(wire.read({&into, 1}, &n) == Io::Closed);
  CHECK(wire.write(parts, &n) == Io::Failed);
  CHECK_FALSE(wire.failure().empty());
}

}  // namespace
}  // namespace hetccl::net
