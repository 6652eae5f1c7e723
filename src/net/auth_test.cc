#include "net/auth.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>

#include "net/socket.h"

namespace hetccl::net {
namespace {

using std::chrono::milliseconds;
using State = HandshakeState;

TimePoint after(int64_t ms) {
  return steady_clock().now() + milliseconds(ms);
}

struct Pair {
  Fd dialer, listener;
  Pair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    dialer = Fd(fds[0]);
    listener = Fd(fds[1]);
  }
};

// Drives the listener's side until it is decided or `deadline` passes.
State drive(ListenHandshake& handshake, int fd, const ListenHandshake::SecretLookup& lookup,
            TimePoint deadline) {
  for (;;) {
    const State state = handshake.advance(fd, lookup);
    if (state != State::InProgress || steady_clock().now() > deadline) return state;
    pollfd entry{fd, handshake.events(), 0};
    ::poll(&entry, 1, 10);
  }
}

TEST_CASE("both ends that know the secret agree, and the hello arrives") {
  Pair pair;
  const Secret secret = random_secret();
  Status dialled;
  std::thread dialer([&] {
    dialled = dial_handshake(pair.dialer.get(), {2, 7, 0x1122334455667788, 3}, secret, after(5000));
    CHECK(send_all(pair.dialer.get(), "x", 1, after(1000)).ok());
  });
  ListenHandshake handshake;
  CHECK(drive(
            handshake, pair.listener.get(), [&](const Hello&) { return &secret; }, after(5000)) ==
        State::Done);
  dialer.join();
  CHECK_MESSAGE(dialled.ok(), dialled.message());
  CHECK(handshake.hello().purpose == 2);
  CHECK(handshake.hello().index == 7);
  CHECK(handshake.hello().communicator == 0x1122334455667788);
  CHECK(handshake.hello().rank == 3);
  char next = 0;  // nothing beyond the handshake was read
  CHECK(recv_all(pair.listener.get(), &next, 1, after(1000)).ok());
  CHECK(next == 'x');
}

TEST_CASE("a wrong secret is noticed by both ends") {
  Pair pair;
  const Secret mine = random_secret();
  const Secret other = random_secret();
  Status dialled;
  std::thread dialer([&] {
    dialled = dial_handshake(pair.dialer.get(), {1, 0, 1, 0}, mine, after(5000));
    pair.dialer.reset();
  });
  ListenHandshake handshake;
  CHECK(drive(
            handshake, pair.listener.get(), [&](const Hello&) { return &other; }, after(5000)) ==
        State::Failed);
  dialer.join();
  CHECK(dialled.code() == Code::RemoteError);
  CHECK(dialled.message().find("does not know this job's secret") != std::string::npos);
  CHECK(handshake.failure().code() == Code::RemoteError);
}

TEST_CASE("a forged proof fails though the challenge was answered in form") {
  Pair pair;
  const Secret secret = random_secret();
  ListenHandshake handshake;
  std::thread stranger([&] {
    // A real hello, recorded; the challenge to it is new, so the recorded proof no longer fits.
    Pair recorded;
    std::thread once([&] {
      CHECK(dial_handshake(recorded.dialer.get(), {1, 0, 1, 0}, secret, after(5000)).ok());
    });
    std::array<uint8_t, 64> hello{};
    CHECK(recv_all(recorded.listener.get(), hello.data(), hello.size(), after(1000)).ok());
    CHECK(send_all(pair.dialer.get(), hello.data(), hello.size(), after(1000)).ok());
    std::array<uint8_t, 64> challenge{};
    CHECK(recv_all(pair.dialer.get(), challenge.data(), challenge.size(), after(1000)).ok());
    CHECK(send_all(recorded.listener.get(), challenge.data(), challenge.size(), after(1000)).ok());
    once.join();
    std::array<uint8_t, 32> proof{};
    CHECK(recv_all(recorded.listener.get(), proof.data(), proof.size(), after(1000)).ok());
    proof[5] = static_cast<uint8_t>(proof[5] ^ 1);
    CHECK(send_all(pair.dialer.get(), proof.data(), proof.size(), after(1000)).ok());
  });
  CHECK(drive(
            handshake, pair.listener.get(), [&](const Hello&) { return &secret; }, after(5000)) ==
        State::Failed);
  stranger.join();
}

TEST_CASE("junk and unexpected hellos fail; a parked hello waits for its secret") {
  const Secret secret = random_secret();
  {
    Pair pair;
    const std::string junk(200, 'G');
    REQUIRE(send_all(pair.dialer.get(), junk.data(), junk.size(), after(1000)).ok());
    ListenHandshake handshake;
    CHECK(handshake.advance(pair.listener.get(), [&](const Hello&) { return &secret; }) ==
          State::Failed);
  }
  for (const bool park : {false, true}) {
    Pair pair;
    Status dialled;
    std::thread dialer(
        [&] { dialled = dial_handshake(pair.dialer.get(), {2, 0, 9, 4}, secret, after(5000)); });
    ListenHandshake handshake(park);
    pollfd entry{pair.listener.get(), POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 5000) == 1);
    const State state =
        handshake.advance(pair.listener.get(), [](const Hello&) { return nullptr; });
    CHECK(state == (park ? State::InProgress : State::Failed));
    CHECK(handshake.parked() == park);
    if (park) {
      CHECK(handshake.events() == 0);
      CHECK(handshake.hello().rank == 4);
      CHECK(drive(
                handshake, pair.listener.get(), [&](const Hello&) { return &secret; },
                after(5000)) == State::Done);
    } else {
      pair.listener.reset();
    }
    dialer.join();
    CHECK(dialled.ok() == park);
  }
}

TEST_CASE("a silent listener is a timeout, and a silent dialer blocks nobody") {
  Pair pair;
  const Secret secret = random_secret();
  ListenHandshake handshake;
  CHECK(handshake.advance(pair.listener.get(), [&](const Hello&) { return &secret; }) ==
        State::InProgress);
  CHECK(handshake.events() == POLLIN);
  CHECK(dial_handshake(pair.dialer.get(), {1, 0, 1, 0}, secret, after(50)).code() == Code::Timeout);
}

}  // namespace
}  // namespace hetccl::net
