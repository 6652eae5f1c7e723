#include "net/tls.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace hetccl::net {

namespace {

// The handshake of auth.h has told both ends which key to use.
constexpr std::string_view kIdentity = "hetccl";
constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr uint8_t kSha256Suite[2] = {0x13, 0x01};  // fixes the hash that goes with the key
// Encrypts this much before writing to the socket: a system call for each 16 KiB record would cost
// as much as the encryption.
constexpr size_t kBatchBytes = 64 << 10;
constexpr size_t kReadBytes = 72 << 10;
// Parts shorter than this are joined into records of at most kRecordBytes: each record costs about
// a microsecond and 22 bytes.
constexpr size_t kShortPart = 4 << 10;
constexpr size_t kRecordBytes = 16 << 10;
constexpr size_t kMaxHandshakeBytes = 16 << 10;

bool would_block(int errno_value) {
  return errno_value == EAGAIN || errno_value == EWOULDBLOCK;
}

std::string last_error() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason != nullptr ? reason : "unknown TLS error";
}

}  // namespace

// Callbacks of OpenSSL: the socket below, and the key.
struct TlsCallbacks {
  static int read(BIO* bio, char* out, int bytes) {
    auto* tls = static_cast<Tls*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    if (tls->hold_) {
      BIO_set_retry_read(bio);
      return -1;
    }
    ssize_t got = 0;
    do {
      got = ::recv(tls->fd_, out, static_cast<size_t>(bytes), MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got > 0 && !tls->secured_) tls->handshake_bytes_ += static_cast<size_t>(got);
    if (got < 0 && would_block(errno)) {
      BIO_set_retry_read(bio);
    } else if (got < 0) {
      tls->errno_ = errno;
    } else if (got == 0) {
      tls->ended_ = true;
    }
    return static_cast<int>(got);
  }
  static int write(BIO* bio, const char* in, int bytes) {
    auto* tls = static_cast<Tls*>(BIO_get_data(bio));
    tls->out_.insert(tls->out_.end(), in, in + bytes);
    return bytes;
  }
  static long control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }
  static SSL_SESSION* session(SSL* ssl) {
    const auto* tls = static_cast<const Tls*>(SSL_get_app_data(ssl));
    SSL_SESSION* session = SSL_SESSION_new();
    const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kSha256Suite);
    if (session != nullptr && cipher != nullptr &&
        SSL_SESSION_set1_master_key(session, tls->key_.data(), tls->key_.size()) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
      return session;
    SSL_SESSION_free(session);
    return nullptr;
  }
  static int dialer_key(SSL* ssl, const EVP_MD* /*md*/, const unsigned char** identity,
                        size_t* bytes, SSL_SESSION** out) {
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *bytes = kIdentity.size();
    *out = session(ssl);
    return *out != nullptr ? 1 : 0;
  }
  static int listener_key(SSL* ssl, const unsigned char* identity, size_t bytes,
                          SSL_SESSION** out) {
    const bool known =
        std::string_view(reinterpret_cast<const char*>(identity), bytes) == kIdentity;
    *out = known ? session(ssl) : nullptr;
    return !known || *out != nullptr ? 1 : 0;
  }
};

Result<std::shared_ptr<const TlsContext>> TlsContext::create() {
  const auto failed = [] {
    return error(ErrorCode::SystemError, "preparing TLS: %s", last_error().c_str());
  };
  // The first call decides: nothing runs at exit (the host process may be half gone by then), and
  // no configuration file changes the settings below.
  if (OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) != 1)
    return failed();
  std::shared_ptr<TlsContext> made(new TlsContext);
  made->socket_ = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "hetccl socket");
  SSL_CTX* context = made->context_ = SSL_CTX_new(TLS_method());
  if (context == nullptr || made->socket_ == nullptr) return failed();
  BIO_meth_set_read(made->socket_, TlsCallbacks::read);
  BIO_meth_set_write(made->socket_, TlsCallbacks::write);
  BIO_meth_set_ctrl(made->socket_, TlsCallbacks::control);
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kCiphers) != 1 ||
      SSL_CTX_set1_groups_list(context, "X25519") != 1 || SSL_CTX_set_num_tickets(context, 0) != 1)
    return failed();
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_read_buffer_len(context, kReadBytes);
  SSL_CTX_set_psk_use_session_callback(context, TlsCallbacks::dialer_key);
  SSL_CTX_set_psk_find_session_callback(context, TlsCallbacks::listener_key);
  return std::shared_ptr<const TlsContext>(std::move(made));
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
  BIO_meth_free(socket_);
}

Tls::Tls(Side side, const Key& key, uint64_t rekey_bytes)
    : side_(side), key_(key), rekey_bytes_(rekey_bytes), until_rekey_(rekey_bytes) {}

Result<std::unique_ptr<Tls>> Tls::create(const TlsContext& context, Side side, const Key& key,
                                         uint64_t rekey_bytes) {
  std::unique_ptr<Tls> tls(new Tls(side, key, rekey_bytes));
  ERR_clear_error();
  tls->ssl_ = SSL_new(context.context_);
  BIO* bio = BIO_new(context.socket_);
  if (tls->ssl_ == nullptr || bio == nullptr) {
    BIO_free(bio);
    return error(ErrorCode::SystemError, "preparing a TLS connection: %s", last_error().c_str());
  }
  BIO_set_data(bio, tls.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(tls->ssl_, bio, bio);
  SSL_set_app_data(tls->ssl_, tls.get());
  if (side == Side::Dialer) {
    // Refuse certificates, too: a listener must use the key.
    SSL_set_verify(tls->ssl_, SSL_VERIFY_PEER, nullptr);
    SSL_set_connect_state(tls->ssl_);
  } else {
    SSL_set_accept_state(tls->ssl_);  // no certificate: a dialer must use the key
  }
  return tls;
}

Tls::~Tls() {
  OPENSSL_cleanse(key_.data(), key_.size());
  SSL_free(ssl_);
}

Io Tls::handshake(int fd) {
  fd_ = fd;
  if (!failure_.empty()) return Io::Failed;
  while (!secured_) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_);
    if (result == 1) {
      if (check_peer() == Io::Failed) return Io::Failed;
      break;
    }
    const bool reads = SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ;
    const std::string why = reads ? "" : last_error();
    const Io flushed = flush();  // an alert, too
    if (ended_) return fail("the connection was cut while encryption was agreed on");
    if (!reads) return fail(why);
    if (handshake_bytes_ > kMaxHandshakeBytes)
      return fail("the other end sent too much while encryption was agreed on");
    return flushed == Io::Failed ? flushed : Io::Blocked;
  }
  return flush();
}

Io Tls::check_peer() {
  if (SSL_session_reused(ssl_) != 1) return fail("the other end did not use the job's key");
  OPENSSL_cleanse(key_.data(), key_.size());
  SSL_set_read_ahead(ssl_, 1);
  secured_ = true;
  return Io::Moved;
}

short Tls::events() const {
  return flushed_ < out_.size() ? POLLOUT : POLLIN;
}

Io Tls::write(int fd, std::span<const iovec> parts, size_t* written) {
  fd_ = fd;
  *written = 0;
  if (!failure_.empty()) return Io::Failed;
  for (;;) {
    const Io flushed = flush();
    if (flushed == Io::Failed) return flushed;
    if (flushed == Io::Blocked) return *written > 0 ? Io::Moved : Io::Blocked;
    *written += std::exchange(accepted_, 0);
    if (!encrypt(parts, *written)) return Io::Failed;
    if (accepted_ == 0) return Io::Moved;
  }
}

// Encrypts a batch of `parts`, from byte `skip` on, into `out_`.
bool Tls::encrypt(std::span<const iovec> parts, size_t skip) {
  std::array<uint8_t, kRecordBytes> joined;  // short parts
  size_t n_joined = 0;
  for (const iovec& part : parts) {
    const size_t skipped = std::min(skip, part.iov_len);
    skip -= skipped;
    const size_t bytes = std::min(part.iov_len - skipped, kBatchBytes - accepted_);
    if (bytes == 0) continue;
    const auto* from = static_cast<const uint8_t*>(part.iov_base) + skipped;
    accepted_ += bytes;
    const bool is_short = bytes < kShortPart;
    if (!is_short || bytes > joined.size() - n_joined) {
      if (!seal({joined.data(), std::exchange(n_joined, 0)})) return false;
    }
    if (!is_short) {
      if (!seal({from, bytes})) return false;
      continue;
    }
    std::memcpy(joined.data() + n_joined, from, bytes);
    n_joined += bytes;
  }
  return seal({joined.data(), n_joined});
}

bool Tls::seal(std::span<const uint8_t> plain) {
  if (plain.empty()) return true;
  if (plain.size() >= until_rekey_ && !rekey()) return false;
  until_rekey_ -= std::min<uint64_t>(until_rekey_, plain.size());
  ERR_clear_error();
  size_t taken = 0;
  if (SSL_write_ex(ssl_, plain.data(), plain.size(), &taken) == 1 && taken == plain.size())
    return true;
  fail(last_error());
  return false;
}

bool Tls::rekey() {
  until_rekey_ = rekey_bytes_;
  ERR_clear_error();
  if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) return true;
  fail(last_error());
  return false;
}

// Returns Moved if nothing is left.
Io Tls::flush() {
  while (flushed_ < out_.size()) {
    const ssize_t sent =
        ::send(fd_, out_.data() + flushed_, out_.size() - flushed_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      flushed_ += static_cast<size_t>(sent);
    } else if (would_block(errno)) {
      return Io::Blocked;
    } else if (errno != EINTR) {
      return fail(std::strerror(errno));
    }
  }
  out_.clear();
  flushed_ = 0;
  return Io::Moved;
}

Io Tls::read(int fd, std::span<const iovec> parts, size_t* got, bool from_socket) {
  fd_ = fd;
  hold_ = !from_socket;
  *got = 0;
  if (!failure_.empty()) return Io::Failed;
  for (const iovec& part : parts) {
    for (size_t done = 0; done < part.iov_len;) {
      size_t bytes = 0;
      ERR_clear_error();
      const int result = SSL_read_ex(ssl_, static_cast<uint8_t*>(part.iov_base) + done,
                                     part.iov_len - done, &bytes);
      if (result != 1) {
        const Io why = read_failure(result);
        return *got > 0 ? Io::Moved : why;  // the next call reports a failure
      }
      done += bytes;
      *got += bytes;
    }
  }
  return Io::Moved;
}

Io Tls::read_failure(int result) {
  if (SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ) return Io::Blocked;
  // An end without a close alert is acceptable: messages and departures are counted by the layers
  // above.
  if (ended_ || SSL_get_error(ssl_, result) == SSL_ERROR_ZERO_RETURN) return Io::Closed;
  if (errno_ != 0) return fail(std::strerror(errno_));
  return fail("what arrived was altered on the way: " + last_error());
}

bool Tls::pending() const {
  return SSL_has_pending(ssl_) == 1;
}

Io Tls::fail(std::string why) {
  if (failure_.empty()) failure_ = std::move(why);
  return Io::Failed;
}

}  // namespace hetccl::net
