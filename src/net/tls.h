// TLS 1.3 over a connected, non-blocking socket, between two ends that share a fresh 32-byte key (a
// pre-shared key with a Diffie-Hellman exchange, so a secret that leaks later opens no recording).
// OpenSSL is linked statically and hidden: it shares no state with a copy in the host process,
// reads no openssl.cnf, and registers nothing to run at exit.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

struct bio_method_st;
struct bio_st;
struct ssl_ctx_st;
struct ssl_st;

namespace hetccl::net {

/// The result of reading or writing. Closed: an orderly end, seen when reading.
enum class Io { Moved, Blocked, Closed, Failed };

/// Shared by all connections of one user. Immutable, thread-safe.
class TlsContext {
 public:
  static Result<std::shared_ptr<const TlsContext>> create();
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class Tls;
  TlsContext() = default;
  ssl_ctx_st* context_ = nullptr;
  bio_method_st* socket_ = nullptr;
};

/// One end of one connection. One thread at a time. No operation blocks; `fd` is the same socket in
/// each.
class Tls {
 public:
  static constexpr size_t kKeyBytes = 32;
  using Key = std::array<uint8_t, kKeyBytes>;
  enum class Side { Dialer, Listener };
  /// RFC 8446, 5.5: AES-GCM is safe for about 380 GiB under one key; keys are renewed far earlier.
  static constexpr uint64_t kRekeyBytes = uint64_t{1} << 35;

  /// `key` is used for this connection only. Renews traffic keys after every `rekey_bytes` written.
  static Result<std::unique_ptr<Tls>> create(const TlsContext& context, Side side, const Key& key,
                                             uint64_t rekey_bytes = kRekeyBytes);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  /// Returns Moved once both ends have proven the same key; everything is encrypted from then on.
  /// Reads no byte beyond the handshake, and at most a few KiB in all.
  Io handshake(int fd);
  /// Returns the poll events that `handshake` waits for: POLLIN or POLLOUT.
  [[nodiscard]] short events() const;

  /// See Wire.
  Io write(int fd, std::span<const iovec> parts, size_t* written);
  Io read(int fd, std::span<const iovec> parts, size_t* got, bool from_socket);
  [[nodiscard]] bool pending() const;
  /// Valid after Failed.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  friend struct TlsCallbacks;
  Tls(Side side, const Key& key, uint64_t rekey_bytes);
  Io check_peer();
  bool encrypt(std::span<const iovec> parts, size_t skip);
  bool seal(std::span<const uint8_t> plain);
  bool rekey();
  Io flush();
  Io fail(std::string why);
  Io read_failure(int result);

  ssl_st* ssl_ = nullptr;
  const Side side_;
  Key key_;  // until the handshake is done
  bool secured_ = false;
  int fd_ = -1;         // during a call
  int errno_ = 0;       // the socket's error
  bool ended_ = false;  // the peer has closed
  bool hold_ = false;   // do not touch the socket
  size_t handshake_bytes_ = 0;
  const uint64_t rekey_bytes_;
  uint64_t until_rekey_;
  std::vector<uint8_t> out_;  // encrypted; `flushed_` bytes are in the kernel
  size_t flushed_ = 0;
  size_t accepted_ = 0;  // the caller's bytes in `out_`
  std::string failure_;
};

}  // namespace hetccl::net
