// Proof, both ways, that the other end of a connection knows a job's secret, before anything else
// of it is read.
//
//   dialer   -> listener   Hello     magic, purpose, communicator, rank, nonce_d (fixed size)
//   listener -> dialer     Challenge nonce_l, HMAC(secret, "listener" | Hello | nonce_l)
//   dialer   -> listener   Proof     HMAC(secret, "dialer" | Hello | nonce_l)
//
// HMAC-SHA256 and constant-time comparison by libsodium. A replayed Hello meets a new nonce and
// fails.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace hetccl::net {

using Secret = std::vector<uint8_t>;  // 32 bytes
inline constexpr size_t kSecretBytes = 32;

/// Who dials, and for what.
struct Hello {
  uint32_t purpose = 0;  ///< one number per user of this file: 1 control plane, 2 transport/tcp
  uint32_t index = 0;    ///< e.g. which stream of a channel
  uint64_t communicator = 0;
  int32_t rank = -1;  ///< of the dialer
  int32_t to = -1;    ///< the rank it wants, where several share a listener
};

Secret random_secret();
void random_bytes(void* out, size_t bytes);

/// HMAC-SHA256(secret, data), for proofs that do not travel over a socket; and its comparison in
/// constant time.
using Mac = std::array<uint8_t, 32>;
Mac authenticate(const Secret& secret, const void* data, size_t bytes);
bool same(const Mac& a, const Mac& b);

enum class HandshakeState { InProgress, Done, Failed };

/// What both sides' state machines share: the bytes exchanged so far, over a non-blocking socket.
class HandshakeBuffer {
 public:
  enum class Step { Complete, Blocked, Failed };
  /// Receives or sends until `end` bytes of the buffer are done, without blocking.
  Step receive(int fd, size_t end);
  Step send(int fd, size_t end);
  Step fail(Status status);
  [[nodiscard]] uint8_t* data() { return bytes_.data(); }
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  std::array<uint8_t, 256> bytes_{};  // hello, challenge, the dialer's proof, the proof expected
  size_t done_ = 0;
  Status failure_;
};

/// The listener's side as a state machine over a non-blocking socket, so that a slow or silent
/// stranger delays nobody.
class ListenHandshake {
 public:
  using State = HandshakeState;
  /// `secret_of(hello)` returns the secret to demand, or null when nobody expects that hello (which
  /// then fails).
  using SecretLookup = std::function<const Secret*(const Hello&)>;

  /// With `park_unknown` a hello that nobody expects yet does not fail: it stays InProgress, with
  /// `parked()`, and the next `advance` asks again. The user bounds number and time of such.
  explicit ListenHandshake(bool park_unknown = false) : park_unknown_(park_unknown) {}

  /// Reads and writes what it can without blocking. Reads no byte beyond the handshake.
  State advance(int fd, const SecretLookup& secret_of);
  /// After Done, or while parked (not proven yet).
  [[nodiscard]] const Hello& hello() const { return hello_; }
  /// The hello is known, its secret is not yet: only the user's next `advance` can help.
  [[nodiscard]] bool parked() const { return parked_; }
  /// After Failed.
  [[nodiscard]] const Status& failure() const { return buffer_.failure(); }
  /// What `advance` waits for: POLLIN or POLLOUT; 0 while parked.
  [[nodiscard]] short events() const;

 private:
  enum class Phase { Greeting, Lookup, Challenge, Proof, Done, Failed };
  using Step = HandshakeBuffer::Step;
  Step advance_phase(int fd, const SecretLookup& secret_of);
  Step find_secret(const SecretLookup& secret_of);
  Step check_proof();
  Hello hello_;
  HandshakeBuffer buffer_;
  Phase phase_ = Phase::Greeting;
  bool park_unknown_;
  bool parked_ = false;
};

/// The dialer's side as a state machine over a connected, non-blocking socket.
class DialHandshake {
 public:
  using State = HandshakeState;
  DialHandshake(const Hello& hello, Secret secret);
  State advance(int fd);
  /// After Failed: RemoteError. Where the other end proved not to know the secret, `rejected()`.
  [[nodiscard]] const Status& failure() const { return buffer_.failure(); }
  [[nodiscard]] bool rejected() const { return rejected_; }
  /// What `advance` waits for: POLLIN or POLLOUT.
  [[nodiscard]] short events() const;

 private:
  enum class Phase { Greeting, Challenge, Proof, Done, Failed };
  using Step = HandshakeBuffer::Step;
  Step advance_phase(int fd);
  Step answer_challenge();
  Secret secret_;
  HandshakeBuffer buffer_;
  Phase phase_ = Phase::Greeting;
  bool rejected_ = false;
};

/// The dialer's side, blocking until `deadline`. RemoteError "does not know this job's secret" on a
/// wrong proof.
Status dial_handshake(int fd, const Hello& hello, const Secret& secret, TimePoint deadline);

}  // namespace hetccl::net
