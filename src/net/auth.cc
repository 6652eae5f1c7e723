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

#include "base/little_endian.h"

namespace hetccl::net {

namespace {

// The layout of the messages; all integers are little endian.
constexpr char kMagic[8] = {'h', 'e', 't', 'c', 'c', 'l', 0, 3};
constexpr size_t kDialerTerms = sizeof kMagic + 4 + 4 + 8 + 4 + 4;
// Offsets in the buffer that both sides use. Hello and the listener's terms and nonce are adjacent,
// so that one contiguous piece is authenticated.
constexpr size_t kListenerTerms = kHelloBytes;
constexpr size_t kListenerNonce = kListenerTerms + kTermsBytes;
constexpr size_t kTranscriptBytes = kListenerNonce + kNonceBytes;
constexpr size_t kListenerProof = kTranscriptBytes;
constexpr size_t kDialerProof = kHelloBytes + kChallengeBytes;
// The proof that the listener expects of the dialer; later, in its place, the listener's last
// message.
constexpr size_t kExpectedProof = kDialerProof + kProofBytes;
constexpr size_t kAcceptedEnd = kExpectedProof + kAcceptedBytes;
constexpr uint8_t kAccepted = 1;
static_assert(kSecretBytes == crypto_auth_hmacsha256_KEYBYTES);
static_assert(kProofBytes == crypto_auth_hmacsha256_BYTES && Tls::kKeyBytes == kProofBytes);
static_assert(kExpectedProof + kProofBytes <= 256);

void require_sodium() {
  // Fails only if the system has no source of randomness, without which nothing is secure.
  if (sodium_init() < 0) std::abort();
}

void encode_terms(const Encryption& encryption, uint64_t file_tag, uint8_t* out) {
  put_number(out, encryption ? uint32_t{1} : uint32_t{0});
  put_number(out + 4, file_tag);
}

bool encrypts(const uint8_t* terms) {
  return get_number<uint32_t>(terms) != 0;
}

uint64_t file_tag(const uint8_t* terms) {
  return get_number<uint64_t>(terms + 4);
}

// Returns the listener's name for errors at both ends.
std::string listener_of(const Hello& hello) {
  return hello.to < 0 ? "the coordinator" : format("rank %d", hello.to);
}

// Returns ok if both ends encrypt, or neither.
Status compare_encryption(const Hello& hello, const uint8_t* dialer, const uint8_t* listener) {
  if (encrypts(dialer) == encrypts(listener)) return {};
  return error(ErrorCode::InvalidUsage,
               "HETCCL_ENCRYPT is %d at rank %d and %d at %s: set it equally on every rank",
               encrypts(dialer) ? 1 : 0, hello.rank, encrypts(listener) ? 1 : 0,
               listener_of(hello).c_str());
}

Status different_file(const Hello& hello, const uint8_t* dialer, const uint8_t* listener) {
  const auto has = [](const uint8_t* terms) { return file_tag(terms) == 0 ? "not set" : "set"; };
  const std::string listens = listener_of(hello);
  if (file_tag(dialer) != 0 && file_tag(listener) != 0)
    return error(ErrorCode::InvalidUsage,
                 "HETCCL_SECRET_FILE's content differs between rank %d and %s: give every rank a "
                 "file of the same content",
                 hello.rank, listens.c_str());
  return error(ErrorCode::InvalidUsage,
               "HETCCL_SECRET_FILE is %s at rank %d and %s at %s: give every rank a file of the "
               "same content",
               has(dialer), hello.rank, has(listener), listens.c_str());
}

void encode_hello(const Hello& hello, uint8_t* out) {
  std::memcpy(out, kMagic, sizeof kMagic);
  put_number(out + 8, hello.purpose);
  put_number(out + 12, hello.index);
  put_number(out + 16, hello.communicator);
  put_number(out + 24, hello.rank);
  put_number(out + 28, hello.to);
  random_bytes(out + kDialerTerms + kTermsBytes, kNonceBytes);
}

bool decode_hello(const uint8_t* in, Hello* out) {
  if (std::memcmp(in, kMagic, sizeof kMagic) != 0) return false;
  out->purpose = get_number<uint32_t>(in + 8);
  out->index = get_number<uint32_t>(in + 12);
  out->communicator = get_number<uint64_t>(in + 16);
  out->rank = get_number<int32_t>(in + 24);
  out->to = get_number<int32_t>(in + 28);
  return true;
}

// Computes HMAC(secret, role | transcript). The roles differ, so that one side's proof cannot be
// reflected as the other's.
void prove(const Secret& secret, std::string_view role, const uint8_t* transcript, uint8_t* out) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, secret.data(), secret.size());
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const uint8_t*>(role.data()), role.size());
  crypto_auth_hmacsha256_update(&state, transcript, kTranscriptBytes);
  crypto_auth_hmacsha256_final(&state, out);
  sodium_memzero(&state, sizeof state);
}

Status wrong_secret() {
  return error(ErrorCode::RemoteError, "the other end does not know this job's secret");
}

Status closed_early() {
  return error(ErrorCode::RemoteError,
               "connection closed while authenticating (was it expected, with the same secret?)");
}

// Waits for `events`. Returns false once the deadline has passed.
bool wait_ready(int fd, short events, TimePoint deadline) {
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

DialHandshake::DialHandshake(const Hello& hello, Key key, Encryption encryption)
    : hello_(hello), key_(std::move(key)), encryption_(std::move(encryption)) {
  encode_hello(hello_, buffer_.data());
  encode_terms(encryption_, key_.file_tag, buffer_.data() + kDialerTerms);
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
  switch (phase_) {
    case Phase::Greeting:
      return buffer_.send(fd, kHelloBytes);
    case Phase::Challenge: {
      const Step step = buffer_.receive(fd, kDialerProof);
      return step == Step::Complete ? answer_challenge() : step;
    }
    case Phase::Proof:
      return buffer_.send(fd, kExpectedProof);
    case Phase::Accepting: {
      if (!disagreement_.ok()) return buffer_.fail(disagreement_);
      const Step step = buffer_.receive(fd, kAcceptedEnd);
      if (step == Step::Complete && buffer_.data()[kExpectedProof] != kAccepted)
        return buffer_.fail(error(ErrorCode::RemoteError, "a malformed answer to a proof"));
      return step;
    }
    default:
      return buffer_.encrypt(fd, encryption_, Tls::Side::Dialer);
  }
}

DialHandshake::Step DialHandshake::answer_challenge() {
  uint8_t* bytes = buffer_.data();
  if (file_tag(bytes + kListenerTerms) != key_.file_tag)
    return buffer_.fail(different_file(hello_, bytes + kDialerTerms, bytes + kListenerTerms));
  prove(key_.secret, "listener", bytes, bytes + kExpectedProof);
  proven_ = sodium_memcmp(bytes + kExpectedProof, bytes + kListenerProof, kProofBytes) == 0;
  if (!proven_) return buffer_.fail(wrong_secret());
  disagreement_ = compare_encryption(hello_, bytes + kDialerTerms, bytes + kListenerTerms);
  prove(key_.secret, "dialer", bytes, bytes + kDialerProof);
  buffer_.derive_tls_key(key_.secret);
  return Step::Complete;
}

short DialHandshake::events() const {
  if (phase_ == Phase::Securing) return buffer_.tls_events();
  return phase_ == Phase::Challenge || phase_ == Phase::Accepting ? POLLIN : POLLOUT;
}

Result<Wire> dial_handshake(Fd fd, const Hello& hello, const Key& key, const Encryption& encryption,
                            TimePoint deadline, bool* proven) {
  DialHandshake handshake(hello, key, encryption);
  for (;;) {
    const HandshakeState state = handshake.advance(fd.get());
    if (proven != nullptr) *proven = handshake.proven();
    if (state == HandshakeState::Done) return handshake.wire(std::move(fd));
    if (state == HandshakeState::Failed) return handshake.failure();
    if (!wait_ready(fd.get(), handshake.events(), deadline))
      return error(ErrorCode::Timeout, "authenticating: no answer before the deadline");
  }
}

HandshakeState ListenHandshake::advance(int fd, const KeyLookup& key_of) {
  while (phase_ != Phase::Done && phase_ != Phase::Failed) {
    const Step step = advance_phase(fd, key_of);
    if (step == Step::Blocked) return State::InProgress;
    phase_ =
        step == Step::Failed ? Phase::Failed : static_cast<Phase>(static_cast<int>(phase_) + 1);
  }
  return phase_ == Phase::Done ? State::Done : State::Failed;
}

ListenHandshake::Step ListenHandshake::advance_phase(int fd, const KeyLookup& key_of) {
  switch (phase_) {
    case Phase::Greeting: {
      const Step step = buffer_.receive(fd, kHelloBytes);
      if (step == Step::Complete && !decode_hello(buffer_.data(), &hello_))
        return buffer_.fail(
            error(ErrorCode::RemoteError, "a connection that does not speak hetccl's protocol"));
      return step;
    }
    case Phase::Lookup:
      return find_key(key_of);
    case Phase::Challenge:
      return buffer_.send(fd, kDialerProof);
    case Phase::Proof: {
      const Step step = other_file_ ? Step::Complete : buffer_.receive(fd, kExpectedProof);
      return step == Step::Complete ? check_proof() : step;
    }
    case Phase::Accepting:
      return buffer_.send(fd, kAcceptedEnd);
    default:
      return buffer_.encrypt(fd, encryption_, Tls::Side::Listener);
  }
}

ListenHandshake::Step ListenHandshake::find_key(const KeyLookup& key_of) {
  const Key* key = key_of(hello_);
  parked_ = key == nullptr && park_unknown_;
  if (parked_) return Step::Blocked;
  if (key == nullptr)
    return buffer_.fail(
        error(ErrorCode::RemoteError, "rank %d dialled for what nobody here expects", hello_.rank));
  uint8_t* bytes = buffer_.data();
  encode_terms(encryption_, key->file_tag, bytes + kListenerTerms);
  random_bytes(bytes + kListenerNonce, kNonceBytes);
  prove(key->secret, "listener", bytes, bytes + kListenerProof);
  prove(key->secret, "dialer", bytes, bytes + kExpectedProof);
  buffer_.derive_tls_key(key->secret);
  other_file_ = file_tag(bytes + kDialerTerms) != key->file_tag;
  return Step::Complete;
}

ListenHandshake::Step ListenHandshake::check_proof() {
  const uint8_t* bytes = buffer_.data();
  if (other_file_)
    return buffer_.fail(different_file(hello_, bytes + kDialerTerms, bytes + kListenerTerms));
  proven_ = sodium_memcmp(bytes + kExpectedProof, bytes + kDialerProof, kProofBytes) == 0;
  if (!proven_) return buffer_.fail(wrong_secret());
  Status agreed = compare_encryption(hello_, bytes + kDialerTerms, bytes + kListenerTerms);
  if (!agreed.ok()) return buffer_.fail(std::move(agreed));
  buffer_.data()[kExpectedProof] = kAccepted;
  return Step::Complete;
}

short ListenHandshake::events() const {
  if (parked_) return 0;
  if (phase_ == Phase::Securing) return buffer_.tls_events();
  return phase_ == Phase::Challenge || phase_ == Phase::Accepting ? POLLOUT : POLLIN;
}

void HandshakeBuffer::derive_tls_key(const Secret& secret) {
  prove(secret, "tls", bytes_.data(), tls_key_.data());
}

HandshakeBuffer::Step HandshakeBuffer::encrypt(int fd, const Encryption& encryption,
                                               Tls::Side side) {
  if (encryption && !tls_) {
    auto made = Tls::create(*encryption, side, tls_key_);
    if (!made.ok()) return fail(made.status());
    tls_ = std::move(made).value();
  }
  sodium_memzero(tls_key_.data(), tls_key_.size());
  if (!tls_) return Step::Complete;
  const Io result = tls_->handshake(fd);
  if (result == Io::Failed)
    return fail(error(ErrorCode::RemoteError, "%s", tls_->failure().c_str()));
  return result == Io::Moved ? Step::Complete : Step::Blocked;
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
