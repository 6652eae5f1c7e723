// Proves to each end of a connection that the other knows a job's secret, before anything else of
// the connection is read.
//
//   dialer   -> listener   Hello     magic, purpose, communicator, rank, terms_d, nonce_d (fixed
//                                    size)
//   listener -> dialer     Challenge terms_l, nonce_l, HMAC(secret, "listener" | T)
//   dialer   -> listener   Proof     HMAC(secret, "dialer" | T)      T = Hello | terms_l | nonce_l
//   listener -> dialer     Accepted  1 byte: the proof was right, and the listener keeps the
//                                    connection. Until then it may drop it, and the dialer tries
//                                    again.
//
// HMAC-SHA256 and constant-time comparison by libsodium. A replayed Hello meets a new nonce and
// fails. Terms are the settings that both ends must share; a difference is told to both. With
// encryption TLS 1.3 follows, under the key HMAC(secret, "tls" | T): docs/design/0003-security.md.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "net/wire.h"

namespace hetccl::net {

using Secret = std::vector<uint8_t>;  // 32 bytes
inline constexpr size_t kSecretBytes = 32;

/// The secret that an end of a connection must know.
struct Key {
  Secret secret;
  uint64_t file_tag = 0;  ///< identifies the HETCCL_SECRET_FILE mixed in; 0: none. Not secret.
};
/// Null: connections are plain.
using Encryption = std::shared_ptr<const TlsContext>;

/// Identifies the dialer and its purpose.
struct Hello {
  /// A number for each user of this file: 1 control plane, 2 transport/tcp, 3 transport/verbs, 4
  /// transport/ncclnet.
  uint32_t purpose = 0;
  uint32_t index = 0;  ///< e.g. which stream of a channel
  uint64_t communicator = 0;
  int32_t rank = -1;  ///< of the dialer
  int32_t to = -1;    ///< the rank it wants, if several share a listener
};

/// Sizes of the messages.
inline constexpr size_t kTermsBytes = 4 + 8;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kAcceptedBytes = 1;
inline constexpr size_t kHelloBytes = 8 + 4 + 4 + 8 + 4 + 4 + kTermsBytes + kNonceBytes;
inline constexpr size_t kChallengeBytes = kTermsBytes + kNonceBytes + kProofBytes;

Secret random_secret();
void random_bytes(void* out, size_t bytes);

/// HMAC-SHA256(secret, data), for proofs that are not sent over a socket, and its constant-time
/// comparison.
using Mac = std::array<uint8_t, 32>;
Mac authenticate(const Secret& secret, const void* data, size_t bytes);
bool same(const Mac& a, const Mac& b);

enum class HandshakeState { InProgress, Done, Failed };

/// Shared by both sides' state machines: the bytes exchanged so far, over a non-blocking socket,
/// and the encryption that follows.
class HandshakeBuffer {
 public:
  enum class Step { Complete, Blocked, Failed };
  /// Receives or sends, without blocking, until `end` bytes of the buffer are done.
  Step receive(int fd, size_t end);
  Step send(int fd, size_t end);
  Step fail(Status status);
  /// Starts TLS under a key that both ends derive from the secret and the transcript. Complete at
  /// once if `encryption` is null.
  Step encrypt(int fd, const Encryption& encryption, Tls::Side side);
  /// Call while the secret is at hand.
  void derive_tls_key(const Secret& secret);
  [[nodiscard]] uint8_t* data() { return bytes_.data(); }
  [[nodiscard]] const Status& failure() const { return failure_; }
  /// Returns the poll events that `encrypt` waits for; 0 before it.
  [[nodiscard]] short tls_events() const { return tls_ ? tls_->events() : short{0}; }
  [[nodiscard]] std::unique_ptr<Tls> take_tls() { return std::move(tls_); }

 private:
  std::array<uint8_t, 256> bytes_{};  // hello, challenge, the dialer's proof, the expected proof
  size_t done_ = 0;
  Status failure_;
  Tls::Key tls_key_{};
  std::unique_ptr<Tls> tls_;
};

/// The listener's side as a state machine over a non-blocking socket, so that a slow or silent
/// stranger delays nobody.
class ListenHandshake {
 public:
  using State = HandshakeState;
  /// Returns the key to demand, or null if nobody expects that hello, which then fails.
  using KeyLookup = std::function<const Key*(const Hello&)>;

  /// With `park_unknown`, a hello that nobody expects yet does not fail: it stays InProgress, with
  /// `parked()`, and the next `advance` looks again. The user must bound their number and time.
  explicit ListenHandshake(Encryption encryption = nullptr, bool park_unknown = false)
      : encryption_(std::move(encryption)), park_unknown_(park_unknown) {}

  /// Reads and writes without blocking. Reads no byte beyond the handshake.
  State advance(int fd, const KeyLookup& key_of);
  /// After Done: returns the wire over `fd`.
  Wire wire(Fd fd) { return Wire(std::move(fd), buffer_.take_tls()); }
  /// Valid after Done, or if `parked` (not proven yet) or `proven`.
  [[nodiscard]] const Hello& hello() const { return hello_; }
  /// Returns whether the hello is known but its key is not: only the user's next `advance` can
  /// help.
  [[nodiscard]] bool parked() const { return parked_; }
  /// Returns whether the peer knows the secret.
  [[nodiscard]] bool proven() const { return proven_; }
  /// Returns whether the peer knows the job's id but has another HETCCL_SECRET_FILE. It is not
  /// proven then.
  [[nodiscard]] bool other_file() const { return other_file_; }
  /// Valid after Failed. InvalidUsage if the ends' settings differ.
  [[nodiscard]] const Status& failure() const { return buffer_.failure(); }
  /// Returns the poll events that `advance` waits for: POLLIN or POLLOUT; 0 while parked.
  [[nodiscard]] short events() const;

 private:
  enum class Phase { Greeting, Lookup, Challenge, Proof, Accepting, Securing, Done, Failed };
  using Step = HandshakeBuffer::Step;
  Step advance_phase(int fd, const KeyLookup& key_of);
  Step find_key(const KeyLookup& key_of);
  Step check_proof();
  Hello hello_;
  HandshakeBuffer buffer_;
  Phase phase_ = Phase::Greeting;
  Encryption encryption_;
  bool park_unknown_;
  bool parked_ = false;
  bool proven_ = false;
  bool other_file_ = false;
};

/// The dialer's side as a state machine over a connected, non-blocking socket.
class DialHandshake {
 public:
  using State = HandshakeState;
  DialHandshake(const Hello& hello, Key key, Encryption encryption);
  State advance(int fd);
  /// After Done: returns the wire over `fd`.
  Wire wire(Fd fd) { return Wire(std::move(fd), buffer_.take_tls()); }
  /// Valid after Failed: InvalidUsage if the ends' settings differ, else RemoteError. Unless the
  /// peer is `proven`, anyone at that address may have caused it.
  [[nodiscard]] const Status& failure() const { return buffer_.failure(); }
  /// Returns whether the peer knows the secret.
  [[nodiscard]] bool proven() const { return proven_; }
  /// Returns the poll events that `advance` waits for: POLLIN or POLLOUT.
  [[nodiscard]] short events() const;

 private:
  enum class Phase { Greeting, Challenge, Proof, Accepting, Securing, Done, Failed };
  using Step = HandshakeBuffer::Step;
  Step advance_phase(int fd);
  Step answer_challenge();
  const Hello hello_;
  Key key_;
  HandshakeBuffer buffer_;
  Phase phase_ = Phase::Greeting;
  Encryption encryption_;
  Status disagreement_;  // proven; reported once the peer has the proof, too
  bool proven_ = false;
};

/// Runs the dialer's side, blocking until `deadline`. Returns RemoteError "does not know this job's
/// secret" for a wrong proof. Sets `proven` (may be null) if the peer has proven that it knows the
/// secret; another attempt would then fail the same way.
Result<Wire> dial_handshake(Fd fd, const Hello& hello, const Key& key, const Encryption& encryption,
                            TimePoint deadline, bool* proven = nullptr);

}  // namespace hetccl::net
