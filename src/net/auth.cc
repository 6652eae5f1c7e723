#include "net/auth.h"

#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace hetccl::net {

namespace {

// Layout of what travels; all integers little endian.
constexpr char kMagic[8] = {'h', 'e', 't', 'c', 'c', 'l', 0, 1};
constexpr size_t kNonceBytes = 32;
constexpr size_t kProofBytes = crypto_auth_hmacsha256_BYTES;
constexpr size_t kNonceOffset = sizeof kMagic + 4 + 4 + 8 + 4 + 4;
constexpr size_t kHelloBytes = kNonceOffset + kNonceBytes;
constexpr size_t kChallengeBytes = kNonceBytes + kProofBytes;
// Offsets in the buffer that both sides use: Hello and the listener's nonce lie side by side, so
// that what is authenticated is one piece.
constexpr size_t kListenerNonce = kHelloBytes;
constexpr size_t kListenerProof = kListenerNonce + kNonceBytes;
constexpr size_t kDialerProof = kHelloBytes + kChallengeBytes;
constexpr size_t kExpectedProof = kDialerProof + kProofBytes;
static_assert(kSecretBytes == crypto_auth_hmacsha256_KEYBYTES);
static_assert(kExpectedProof + kProofBytes <= 256);

void require_sodium() {
  // Fails only where the system has no source of randomness: nothing secure can be done then.
  if (sodium_init() < 0) std::abort();
}

template <typename T>
void put(uint8_t* out, T value) {
  for (size_t i = 0; i < sizeof value; ++i)
    out[i] = static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i));
}

template <typename T>
T get(const uint8_t* in) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(in[i]) << (8 * i);
  return static_cast<T>(value);
}

void encode_hello(const Hello& hello, uint8_t* out) {
  std::memcpy(out, kMagic, sizeof kMagic);
  put(out + 8, hello.purpose);
  put(out + 12, hello.index);
  put(out + 16, hello.communicator);
  put(out + 24, hello.rank);
  put(out + 28, hello.to);
  random_bytes(out + kNonceOffset, kNonceBytes);
}

bool decode_hello(const uint8_t* in, Hello* out) {
  if (std::memcmp(in, kMagic, sizeof kMagic) != 0) return false;
  out->purpose = get<uint32_t>(in + 8);
  out->index = get<uint32_t>(in + 12);
  out->communicator = get<uint64_t>(in + 16);
  out->rank = get<int32_t>(in + 24);
  out->to = get<int32_t>(in + 28);
  return true;
}

// HMAC(secret, role | Hello | nonce_l); `transcript` is kHelloBytes + kNonceBytes long. The roles
// differ, so neither side's proof can be reflected as the other's.
void prove(const Secret& secret, std::string_view role, const uint8_t* transcript, uint8_t* out) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, secret.data(), secret.size());
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const uint8_t*>(role.data()), role.size());
  crypto_auth_hmacsha256_update(&state, transcript, kHelloBytes + kNonceBytes);
  crypto_auth_hmacsha256_final(&state, out);
  sodium_memzero(&state, sizeof state);
}

Status wrong_secret() {
  return error(Code::RemoteError, "the other end does not know this job's secret");
}

Status closed_early() {
  return error(Code::RemoteError,
               "connection closed while authenticating (was it expected, with the same secret?)");
}

// Waits for `events`; false once the deadline has passed.
bool wait_for(int fd, short events, TimePoint deadline) {
  for (TimePoint now = steady_clock().now(); now < deadline; now = steady_clock().now()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
    pollfd entry{fd, events, 0};
    if (::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 1000))) > 0) return true;
  }
  return false;
}

}  // namespace

Secret random_secret() {
  Secret secret(kSecretBytes);
  random_bytes(secret.data(), secret.size());
  return secret;
}

void random_bytes(void* out, size_t bytes) {
  require_sodium();
  randombytes_buf(out, bytes);
}

Mac authenticate(const Secret& secret, const void* data, size_t bytes) {
  require_sodium();
  Mac mac;
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, secret.data(), secret.size());
  crypto_auth_hmacsha256_update(&state, static_cast<const uint8_t*>(data), bytes);
  crypto_auth_hmacsha256_final(&state, mac.data());
  sodium_memzero(&state, sizeof state);
  return mac;
}

bool same(const Mac& a, const Mac& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

DialHandshake::DialHandshake(const Hello& hello, Secret secret) : secret_(std::move(secret)) {
  encode_hello(hello, buffer_.data());
}

HandshakeState DialHandshake::advance(int fd) {
  while (phase_ != Phase::Done && phase_ != Phase::Failed) {
    const Step step = advance_phase(fd);
    if (step == Step::Blocked) return State::InProgress;
    phase_ =
        step == Step::Failed ? Phase::Failed : static_cast<Phase>(static_cast<int>(phase_) + 1);
  }
  return phase_ == Phase::Done ? State::Done : State::Failed;
}

DialHandshake::Step DialHandshake::advance_phase(int fd) {
  if (phase_ == Phase::Greeting) return buffer_.send(fd, kHelloBytes);
  if (phase_ == Phase::Proof) return buffer_.send(fd, kExpectedProof);
  const Step step = buffer_.receive(fd, kDialerProof);
  return step == Step::Complete ? answer_challenge() : step;
}

DialHandshake::Step DialHandshake::answer_challenge() {
  uint8_t* bytes = buffer_.data();
  prove(secret_, "listener", bytes, bytes + kExpectedProof);
  rejected_ = sodium_memcmp(bytes + kExpectedProof, bytes + kListenerProof, kProofBytes) != 0;
  if (rejected_) return buffer_.fail(wrong_secret());
  prove(secret_, "dialer", bytes, bytes + kDialerProof);
  return Step::Complete;
}

short DialHandshake::events() const {
  return phase_ == Phase::Challenge ? POLLIN : POLLOUT;
}

Status dial_handshake(int fd, const Hello& hello, const Secret& secret, TimePoint deadline) {
  DialHandshake handshake(hello, secret);
  for (;;) {
    const HandshakeState state = handshake.advance(fd);
    if (state == HandshakeState::Done) return {};
    if (state == HandshakeState::Failed) return handshake.failure();
    if (!wait_for(fd, handshake.events(), deadline))
      return error(Code::Timeout, "authenticating: no answer before the deadline");
  }
}

HandshakeState ListenHandshake::advance(int fd, const SecretLookup& secret_of) {
  while (phase_ != Phase::Done && phase_ != Phase::Failed) {
    const Step step = advance_phase(fd, secret_of);
    if (step == Step::Blocked) return State::InProgress;
    phase_ =
        step == Step::Failed ? Phase::Failed : static_cast<Phase>(static_cast<int>(phase_) + 1);
  }
  return phase_ == Phase::Done ? State::Done : State::Failed;
}

ListenHandshake::Step ListenHandshake::advance_phase(int fd, const SecretLookup& secret_of) {
  switch (phase_) {
    case Phase::Greeting: {
      const Step step = buffer_.receive(fd, kHelloBytes);
      if (step == Step::Complete && !decode_hello(buffer_.data(), &hello_))
        return buffer_.fail(
            error(Code::RemoteError, "a connection that does not speak hetccl's protocol"));
      return step;
    }
    case Phase::Lookup:
      return find_secret(secret_of);
    case Phase::Challenge:
      return buffer_.send(fd, kDialerProof);
    default: {
      const Step step = buffer_.receive(fd, kExpectedProof);
      return step == Step::Complete ? check_proof() : step;
    }
  }
}

ListenHandshake::Step ListenHandshake::find_secret(const SecretLookup& secret_of) {
  const Secret* secret = secret_of(hello_);
  parked_ = secret == nullptr && park_unknown_;
  if (parked_) return Step::Blocked;
  if (secret == nullptr)
    return buffer_.fail(
        error(Code::RemoteError, "rank %d dialled for what nobody here expects", hello_.rank));
  random_bytes(buffer_.data() + kListenerNonce, kNonceBytes);
  prove(*secret, "listener", buffer_.data(), buffer_.data() + kListenerProof);
  prove(*secret, "dialer", buffer_.data(), buffer_.data() + kExpectedProof);
  return Step::Complete;
}

ListenHandshake::Step ListenHandshake::check_proof() {
  if (sodium_memcmp(buffer_.data() + kExpectedProof, buffer_.data() + kDialerProof, kProofBytes) ==
      0)
    return Step::Complete;
  return buffer_.fail(wrong_secret());
}

short ListenHandshake::events() const {
  if (parked_) return 0;
  return phase_ == Phase::Challenge ? POLLOUT : POLLIN;
}

HandshakeBuffer::Step HandshakeBuffer::fail(Status status) {
  failure_ = std::move(status);
  return Step::Failed;
}

HandshakeBuffer::Step HandshakeBuffer::receive(int fd, size_t end) {
  while (done_ < end) {
    const ssize_t received = ::recv(fd, bytes_.data() + done_, end - done_, MSG_DONTWAIT);
    if (received > 0) {
      done_ += static_cast<size_t>(received);
    } else if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return Step::Blocked;
    } else if (received == 0 || errno != EINTR) {
      return fail(closed_early());
    }
  }
  return Step::Complete;
}

HandshakeBuffer::Step HandshakeBuffer::send(int fd, size_t end) {
  while (done_ < end) {
    const ssize_t sent =
        ::send(fd, bytes_.data() + done_, end - done_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      done_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Step::Blocked;
    } else if (errno != EINTR) {
      return fail(closed_early());
    }
  }
  return Step::Complete;
}

}  // namespace hetccl::net
