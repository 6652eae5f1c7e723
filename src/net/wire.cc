#include "net/wire.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace hetccl::net {

namespace {

bool is_transient(int errno_value) {
  return errno_value == EAGAIN || errno_value == EWOULDBLOCK || errno_value == EINTR;
}

}  // namespace

void Wire::reset() {
  tls_.reset();
  fd_.reset();
}

Io Wire::write(std::span<const iovec> parts, size_t* written, bool more) {
  if (tls_) return tls_->write(fd_.get(), parts, written);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
  const ssize_t sent = ::sendmsg(fd_.get(), &message, flags);
  *written = sent > 0 ? static_cast<size_t>(sent) : 0;
  if (sent >= 0) return Io::Moved;
  if (is_transient(errno)) return Io::Blocked;
  errno_ = errno;
  return Io::Failed;
}

Io Wire::read(std::span<const iovec> parts, size_t* got, bool from_socket) {
  if (tls_) return tls_->read(fd_.get(), parts, got, from_socket);
  *got = 0;
  if (!from_socket) return Io::Blocked;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  const ssize_t received = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  *got = received > 0 ? static_cast<size_t>(received) : 0;
  if (received > 0) return Io::Moved;
  if (received == 0) return Io::Closed;
  if (is_transient(errno)) return Io::Blocked;
  errno_ = errno;
  return Io::Failed;
}

std::string Wire::failure() const {
  return tls_ ? tls_->failure() : std::strerror(errno_);
}

}  // namespace hetccl::net
