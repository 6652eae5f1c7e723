// A connected, authenticated, non-blocking socket, plain or encrypted; users need not know which.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>

#include "net/socket.h"
#include "net/tls.h"

namespace hetccl::net {

/// One thread at a time. Move-only.
class Wire {
 public:
  Wire() = default;
  /// `tls` has completed its handshake over `fd`; without one the wire is plain.
  explicit Wire(Fd fd, std::unique_ptr<Tls> tls = nullptr)
      : fd_(std::move(fd)), tls_(std::move(tls)) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool valid() const { return fd_.valid(); }
  [[nodiscard]] bool encrypted() const { return tls_ != nullptr; }
  /// Closes.
  void reset();

  /// Writes the parts in order, as far as the socket takes them. `*written` counts the bytes in the
  /// kernel. The rest must be offered again first, with the same bytes. Returns Moved if anything
  /// was written; Blocked until the socket polls writable; Failed. `more`: another write follows
  /// soon.
  Io write(std::span<const iovec> parts, size_t* written, bool more = false);
  /// Fills the parts in order with the bytes that have come. Returns Moved if any have; Blocked
  /// until the socket polls readable; Closed; Failed.
  Io read(std::span<const iovec> parts, size_t* got) { return read(parts, got, true); }
  /// Like `read`, but only takes bytes that are already in this process, at most about 64 KiB.
  Io read_pending(std::span<const iovec> parts, size_t* got) { return read(parts, got, false); }
  /// Returns whether bytes wait in this process, whatever the socket polls. A user that stops
  /// reading before Blocked must take these.
  [[nodiscard]] bool pending() const { return tls_ != nullptr && tls_->pending(); }
  /// Valid after Failed.
  [[nodiscard]] std::string failure() const;

 private:
  Io read(std::span<const iovec> parts, size_t* got, bool from_socket);

  Fd fd_;
  std::unique_ptr<Tls> tls_;
  int errno_ = 0;
};

}  // namespace hetccl::net
