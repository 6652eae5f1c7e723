// Both ends of the handshake, and of TLS after it, against a peer that sends anything: without the
// key it never passes.
#include <sys/socket.h>

#include "fuzz/fuzz.h"
#include "net/auth.h"

namespace hetccl {

using namespace net;

namespace {

constexpr uint8_t kListens = 0, kDials = 1, kListensAfterProof = 2, kDialsAfterProof = 3;

const Key& key() {
  static const Key made{Secret(kSecretBytes, 3), 0};
  return made;
}

const Encryption& tls() {
  static const Encryption made = TlsContext::create().value();
  return made;
}

struct Line {
  Line() {
    int fds[2];
    fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0, "sockets");
    end = Fd(fds[0]);
    far = Fd(fds[1]);
  }
  void say(std::span<const uint8_t> bytes) const {
    (void)::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Passes bytes from `end` to `other`'s end and back, as a line between two honest ends would.
  void pass_on(const Line& other, size_t bytes) const {
    fuzz::Bytes data(bytes);
    const ssize_t got = ::recv(far.get(), data.data(), bytes, 0);
    fuzz::require(got == static_cast<ssize_t>(bytes), "an honest end speaks");
    other.say(data);
  }
  Fd end, far;
};

const Key* known(const Hello& /*hello*/) {
  return &key();
}

// An honest dialer and an honest listener, both past the proofs, neither past TLS.
struct Honest {
  Honest() {
    (void)dialer.advance(dials.end.get());
    dials.pass_on(listens, kHelloBytes);
    (void)listener.advance(listens.end.get(), known);
    listens.pass_on(dials, kChallengeBytes);
    (void)dialer.advance(dials.end.get());
    dials.pass_on(listens, kProofBytes);
    fuzz::require(listener.advance(listens.end.get(), known) == HandshakeState::InProgress,
                  "encryption is agreed on after the proof");
    fuzz::require(listener.proven(), "an honest end is proven");
    listens.pass_on(dials, kAcceptedBytes);
    fuzz::require(dialer.advance(dials.end.get()) == HandshakeState::InProgress,
                  "an accepted dialer begins to encrypt");
  }
  Line dials, listens;
  DialHandshake dialer{{1, 0, 7, 1}, key(), tls()};
  ListenHandshake listener{tls()};
};

void listen(std::span<const uint8_t> bytes, const Encryption& encryption) {
  const Line line;
  line.say(bytes);
  ListenHandshake handshake(encryption);
  const auto state = handshake.advance(line.end.get(), known);
  fuzz::require(state != HandshakeState::Done && !handshake.proven(), "no key, no entry");
}

void dial(std::span<const uint8_t> bytes) {
  const Line line;
  line.say(bytes);
  DialHandshake handshake({1, 0, 7, 1}, key(), nullptr);
  fuzz::require(handshake.advance(line.end.get()) != HandshakeState::Done, "no key, no entry");
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  // Honest ends' own words, recorded.
  Line dials, listens;
  DialHandshake dialer({1, 0, 7, 1}, key(), tls());
  (void)dialer.advance(dials.end.get());
  Bytes hello(kHelloBytes);
  require(::recv(dials.far.get(), hello.data(), hello.size(), 0) > 0, "a hello");
  listens.say(hello);
  ListenHandshake listener(tls());
  (void)listener.advance(listens.end.get(), known);
  Bytes challenge(kChallengeBytes);
  require(::recv(listens.far.get(), challenge.data(), challenge.size(), 0) > 0, "a challenge");
  dials.say(challenge);
  (void)dialer.advance(dials.end.get());
  Bytes proof_and_tls(4096);
  const ssize_t proof = ::recv(dials.far.get(), proof_and_tls.data(), proof_and_tls.size(), 0);
  require(proof == ssize_t{kProofBytes}, "a proof");
  listens.say(std::span(proof_and_tls).first(kProofBytes));
  (void)listener.advance(listens.end.get(), known);
  listens.pass_on(dials, kAcceptedBytes);
  (void)dialer.advance(dials.end.get());
  const ssize_t tls_bytes = ::recv(dials.far.get(), proof_and_tls.data() + kProofBytes,
                                   proof_and_tls.size() - kProofBytes, 0);
  proof_and_tls.resize(kProofBytes + static_cast<size_t>(std::max<ssize_t>(tls_bytes, 0)));
  listens.say(std::span(proof_and_tls).subspan(kProofBytes));
  (void)listener.advance(listens.end.get(), known);
  Bytes server_flight(4096);
  const ssize_t more = ::recv(listens.far.get(), server_flight.data(), server_flight.size(), 0);
  server_flight.resize(static_cast<size_t>(std::max<ssize_t>(more, 0)));

  std::vector<Bytes> seeds = {hello, challenge, {}, server_flight};
  seeds[0].insert(seeds[0].end(), proof_and_tls.begin(), proof_and_tls.end());
  seeds[2].assign(proof_and_tls.begin() + kProofBytes, proof_and_tls.end());
  for (size_t i = 0; i < seeds.size(); ++i) seeds[i].insert(seeds[i].begin(), uint8_t(i));
  return seeds;
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  fuzz::Input input(data, size);
  const uint8_t kind = input.byte() % 4;
  const auto says = input.rest();
  if (kind == kListens) {
    listen(says, nullptr);
    listen(says, tls());
  } else if (kind == kDials) {
    dial(says);
  } else if (kind == kListensAfterProof) {
    Honest honest;
    honest.listens.say(says);
    fuzz::require(honest.listener.advance(honest.listens.end.get(), known) != HandshakeState::Done,
                  "nobody completes TLS without the key");
  } else {
    static_assert(kListensAfterProof + 1 == kDialsAfterProof);
    Honest honest;
    honest.dials.say(says);
    fuzz::require(honest.dialer.advance(honest.dials.end.get()) != HandshakeState::Done,
                  "nobody completes TLS without the key");
  }
  return 0;
}
