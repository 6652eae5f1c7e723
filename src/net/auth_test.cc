#include "net/auth.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <string>

#include "fake/patience.h"
#include "fake/thread.h"
#include "net/socket.h"

namespace hetccl::net {
namespace {

using std::chrono::milliseconds;
using State = HandshakeState;

TimePoint in_ms(int64_t ms) {
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
State drive(ListenHandshake& handshake, int fd, const ListenHandshake::KeyLookup& lookup,
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
  const Key key{random_secret()};
  Status dialled;
  fake::Thread dialer([&] {
    auto wire = dial_handshake(std::move(pair.dialer), {2, 7, 0x1122334455667788, 3}, key, nullptr,
                               in_ms(fake::kHangMs));
    dialled = wire.status();
    if (dialled.ok()) CHECK(send_all(wire->fd(), "x", 1, in_ms(fake::kHangMs)).ok());
  });
  ListenHandshake handshake;
  CHECK(drive(
            handshake, pair.listener.get(), [&](const Hello&) { return &key; },
            in_ms(fake::kHangMs)) == State::Done);
  dialer.join();
  CHECK_MESSAGE(dialled.ok(), dialled.message());
  CHECK(handshake.hello().purpose == 2);
  CHECK(handshake.hello().index == 7);
  CHECK(handshake.hello().communicator == 0x1122334455667788);
  CHECK(handshake.hello().rank == 3);
  char next = 0;  // nothing beyond the handshake was read
  CHECK(recv_all(pair.listener.get(), &next, 1, in_ms(fake::kHangMs)).ok());
  CHECK(next == 'x');
}

Encryption tls() {
  auto made = TlsContext::create();
  REQUIRE(made.ok());
  return std::move(made).value();
}

// The outcome at both ends, with these keys and settings.
struct Outcome {
  Result<Wire> dialled = Status();
  State listened = State::Failed;
  ListenHandshake handshake;
  Fd listener;
  Outcome(const Key& dialer_key, const Encryption& dialer, const Key& listener_key,
          const Encryption& listens, int32_t to = -1)
      : handshake(listens) {
    Pair pair;
    fake::Thread dialer_thread([&] {
      dialled = dial_handshake(std::move(pair.dialer), {1, 0, 1, 3, to}, dialer_key, dialer,
                               in_ms(fake::kHangMs));
    });
    listened = drive(
        handshake, pair.listener.get(), [&](const Hello&) { return &listener_key; },
        in_ms(fake::kHangMs));
    if (listened == State::Failed) pair.listener.reset();
    dialer_thread.join();
    listener = std::move(pair.listener);
  }
};

TEST_CASE("with encryption on both ends the wire is encrypted") {
  const Key key{random_secret()};
  Outcome both(key, tls(), key, tls());
  REQUIRE_MESSAGE(both.dialled.ok(), both.dialled.status().message());
  REQUIRE_MESSAGE(both.listened == State::Done, both.handshake.failure().message());
  Wire wire = both.handshake.wire(std::move(both.listener));
  CHECK(wire.encrypted());
  CHECK(both.dialled->encrypted());
  uint8_t sent[] = {1, 2, 3}, received[3] = {};
  const iovec from{sent, 3}, into{received, 3};
  size_t n = 0;
  CHECK(both.dialled->write({&from, 1}, &n) == Io::Moved);
  CHECK(wire.read({&into, 1}, &n) == Io::Moved);
  CHECK(received[2] == 3);
  Outcome neither(key, nullptr, key, nullptr);
  CHECK_FALSE(neither.dialled->encrypted());
}

TEST_CASE("ends that are set differently are told so, both, in the same words") {
  const Key key{random_secret()};
  for (const bool dialer : {true, false}) {
    const Outcome outcome(key, dialer ? tls() : nullptr, key, dialer ? nullptr : tls(),
                          dialer ? -1 : 7);
    const Status status = outcome.dialled.status();
    CHECK(status.code() == ErrorCode::InvalidUsage);
    CHECK(status.message() ==
          (dialer ? "HETCCL_ENCRYPT is 1 at rank 3 and 0 at the coordinator: set it equally on "
                    "every rank"
                  : "HETCCL_ENCRYPT is 0 at rank 3 and 1 at rank 7: set it equally on every rank"));
    CHECK(outcome.listened == State::Failed);
    CHECK(outcome.handshake.proven());
    CHECK(outcome.handshake.failure().message() == status.message());
  }
}

TEST_CASE("another secret file is told to both ends, and proves nothing") {
  const Secret secret = random_secret();
  const Key none{secret, 0}, one{random_secret(), 5}, other{random_secret(), 7};
  const struct {
    const Key& dialer;
    const Key& listener;
    const char* says;
  } cases[] = {{none, one, "HETCCL_SECRET_FILE is not set at rank 3 and set at the coordinator"},
               {one, none, "HETCCL_SECRET_FILE is set at rank 3 and not set at the coordinator"},
               {one, other, "HETCCL_SECRET_FILE's content differs between rank 3 and the coord"}};
  for (const auto& test : cases) {
    const Outcome outcome(test.dialer, nullptr, test.listener, nullptr);
    CHECK(outcome.dialled.status().code() == ErrorCode::InvalidUsage);
    CHECK(outcome.dialled.status().message().starts_with(test.says));
    CHECK(outcome.listened == State::Failed);
    CHECK(outcome.handshake.other_file());
    CHECK_FALSE(outcome.handshake.proven());
    CHECK(outcome.handshake.failure().message() == outcome.dialled.status().message());
  }
}

TEST_CASE("who learnt the id alone does not pass by saying that he has the file") {
  const Secret secret = random_secret();
  const Key real{random_secret(), 5}, forged{secret, 5};
  const Outcome outcome(forged, nullptr, real, nullptr);
  CHECK(outcome.dialled.status().code() == ErrorCode::RemoteError);
  CHECK(outcome.listened == State::Failed);
  CHECK_FALSE(outcome.handshake.proven());
}

TEST_CASE("a wrong secret is noticed by both ends") {
  Pair pair;
  const Key mine{random_secret()};
  const Key other{random_secret()};
  Status dialled;
  fake::Thread dialer([&] {
    dialled =
        dial_handshake(std::move(pair.dialer), {1, 0, 1, 0}, mine, nullptr, in_ms(fake::kHangMs))
            .status();
  });
  ListenHandshake handshake;
  CHECK(drive(
            handshake, pair.listener.get(), [&](const Hello&) { return &other; },
            in_ms(fake::kHangMs)) == State::Failed);
  dialer.join();
  CHECK(dialled.code() == ErrorCode::RemoteError);
  CHECK(dialled.message().find("does not know this job's secret") != std::string::npos);
  CHECK(handshake.failure().code() == ErrorCode::RemoteError);
}

TEST_CASE("a forged proof fails though the challenge was answered in form") {
  Pair pair;
  const Key key{random_secret()};
  ListenHandshake handshake;
  fake::Thread stranger([&] {
    // Replays a real hello: the new challenge makes the recorded proof invalid.
    Pair recorded;
    Wire dialled;
    fake::Thread once([&] {
      auto wire = dial_handshake(std::move(recorded.dialer), {1, 0, 1, 0}, key, nullptr,
                                 in_ms(fake::kHangMs));
      CHECK(wire.ok());
      if (wire.ok()) dialled = std::move(*wire);
    });
    std::array<uint8_t, kHelloBytes> hello{};
    CHECK(recv_all(recorded.listener.get(), hello.data(), hello.size(), in_ms(fake::kHangMs)).ok());
    CHECK(send_all(pair.dialer.get(), hello.data(), hello.size(), in_ms(fake::kHangMs)).ok());
    std::array<uint8_t, kChallengeBytes> challenge{};
    CHECK(
        recv_all(pair.dialer.get(), challenge.data(), challenge.size(), in_ms(fake::kHangMs)).ok());
    CHECK(
        send_all(recorded.listener.get(), challenge.data(), challenge.size(), in_ms(fake::kHangMs))
            .ok());
    std::array<uint8_t, kProofBytes> proof{};
    CHECK(recv_all(recorded.listener.get(), proof.data(), proof.size(), in_ms(fake::kHangMs)).ok());
    const uint8_t accepted = 1;
    CHECK(send_all(recorded.listener.get(), &accepted, kAcceptedBytes, in_ms(fake::kHangMs)).ok());
    once.join();
    proof[5] = static_cast<uint8_t>(proof[5] ^ 1);
    CHECK(send_all(pair.dialer.get(), proof.data(), proof.size(), in_ms(fake::kHangMs)).ok());
  });
  CHECK(drive(
            handshake, pair.listener.get(), [&](const Hello&) { return &key; },
            in_ms(fake::kHangMs)) == State::Failed);
  stranger.join();
}

TEST_CASE("junk and unexpected hellos fail; a parked hello waits for its secret") {
  const Key key{random_secret()};
  {
    Pair pair;
    const std::string junk(200, 'G');
    REQUIRE(send_all(pair.dialer.get(), junk.data(), junk.size(), in_ms(fake::kHangMs)).ok());
    ListenHandshake handshake;
    CHECK(handshake.advance(pair.listener.get(), [&](const Hello&) { return &key; }) ==
          State::Failed);
  }
  for (const bool park : {false, true}) {
    Pair pair;
    Status dialled;
    fake::Thread dialer([&] {
      dialled =
          dial_handshake(std::move(pair.dialer), {2, 0, 9, 4}, key, nullptr, in_ms(fake::kHangMs))
              .status();
    });
    ListenHandshake handshake(nullptr, park);
    pollfd entry{pair.listener.get(), POLLIN, 0};
    REQUIRE(::poll(&entry, 1, fake::kHangMs) == 1);
    const State state =
        handshake.advance(pair.listener.get(), [](const Hello&) { return nullptr; });
    CHECK(state == (park ? State::InProgress : State::Failed));
    CHECK(handshake.parked() == park);
    if (park) {
      CHECK(handshake.events() == 0);
      CHECK(handshake.hello().rank == 4);
      CHECK(drive(
                handshake, pair.listener.get(), [&](const Hello&) { return &key; },
                in_ms(fake::kHangMs)) == State::Done);
    } else {
      pair.listener.reset();
    }
    dialer.join();
    CHECK(dialled.ok() == park);
  }
}

TEST_CASE("a silent listener is a timeout, and a silent dialer blocks nobody") {
  Pair pair;
  const Key key{random_secret()};
  ListenHandshake handshake;
  CHECK(handshake.advance(pair.listener.get(), [&](const Hello&) { return &key; }) ==
        State::InProgress);
  CHECK(handshake.events() == POLLIN);
  CHECK(dial_handshake(std::move(pair.dialer), {1, 0, 1, 0}, key, nullptr, in_ms(50))
            .status()
            .code() == ErrorCode::Timeout);
}

}  // namespace
}  // namespace hetccl::net
