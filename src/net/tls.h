// TLS 1.3 over a connected, non-blocking socket, between two ends that share a fresh 32-byte key
// (a pre-shared key with a Diffie-Hellman exchange: a secret that leaks later opens no recording).
// OpenSSL is linked in statically and hidden: it shares no state with a copy that the host process
// has loaded, reads no openssl.cnf, and registers nothing to run at exit.
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

/// What reading or writing came to. Closed is an orderly end, seen in reading.
enum class Io { Moved, Blocked, Closed, Failed };

/// What all connections of one user share. Immutable, thread-safe.
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

/// One end of one connection. One thread at a time. No operation blocks; `fd` is the same socket
/// in each.
class Tls {
 public:
  static constexpr size_t kKeyBytes = 32;
  using Key = std::array<uint8_t, kKeyBytes>;
  enum class Side { Dialer, Listener };
  /// RFC 8446, 5.5: AES-GCM is safe for some 380 GiB under one key; new ones are made far earlier.
  static constexpr uint64_t kRekeyBytes = uint64_t{1} << 35;

  /// `key` is used for this connection only. New traffic keys are made every `rekey_bytes` written.
  static Result<std::unique_ptr<Tls>> create(const TlsContext& context, Side side, const Key& key,
                                             uint64_t rekey_bytes = kRekeyBytes);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  /// Moved: both ends have the same key and all is encrypted from now on. Reads no byte beyond the
  /// handshake, and at most a few KiB in all.
  Io handshake(int fd);
  /// What `handshake` waits for: POLLIN or POLLOUT.
  [[nodiscard]] short events() const;

  /// As Wire's.
  Io write(int fd, std::span<const iovec> parts, size_t* written);
  Io read(int fd, std::span<const iovec> parts, size_t* got, bool from_socket);
  [[nodiscard]] bool pending() const;
  /// After Failed: why.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  friend struct TlsCallbacks;
  Tls(Side side, const Key& key, uint64_t rekey_bytes);
  Io check_peer();
  bool encrypt(std::span<const iovec> parts, size_t skip);
  bool rekey();
  Io flush();
  Io fail(std::string why);
  Io read_failure(int result);

  ssl_st* ssl_ = nullptr;
  const Side side_;
  Key key_;  // until the handshake is done
  bool secured_ = false;
  int fd_ = -1;         // for the duration of a call
  int errno_ = 0;       // why the socket refused
  bool ended_ = false;  // the peer has closed
  bool hold_ = false;   // leave the socket alone
  size_t handshake_bytes_ = 0;
  const uint64_t rekey_bytes_;
  uint64_t until_rekey_;
  std::vector<uint8_t> out_;  // encrypted, of which `flushed_` bytes are in the kernel
  size_t flushed_ = 0;
  size_t accepted_ = 0;  // bytes of the caller that `out_` holds
  std::string failure_;
};

}  // namespace hetccl::net
