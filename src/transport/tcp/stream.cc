#include "transport/tcp/stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hetccl::transport::tcp {

namespace {

bool would_block(int errno_value) {
  return errno_value == EAGAIN || errno_value == EWOULDBLOCK || errno_value == EINTR;
}

// The most that one call may read: the engine drives other ranks too.
constexpr size_t kMaxRead = 512 << 10;

}  // namespace

void PieceWriter::start(const Header& header, const void* payload) {
  encode(header, header_.data());
  message_ = header.number;
  payload_ = static_cast<const std::byte*>(payload);
  left_header_ = kHeaderBytes;
  left_payload_ = header.bytes;
}

Io PieceWriter::write(int fd, size_t* written) {
  iovec parts[2] = {{header_.data() + (kHeaderBytes - left_header_), left_header_},
                    {const_cast<std::byte*>(payload_), left_payload_}};
  msghdr message{};
  message.msg_iov = left_header_ > 0 ? parts : parts + 1;
  message.msg_iovlen = (left_header_ > 0 ? 1U : 0U) + (left_payload_ > 0 ? 1U : 0U);
  const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  *written = 0;
  if (sent < 0) return would_block(errno) ? Io::Blocked : Io::Failed;
  *written = static_cast<size_t>(sent);
  const size_t of_header = std::min(*written, left_header_);
  const size_t of_payload = *written - of_header;
  left_header_ -= of_header;
  left_payload_ -= of_payload;
  if (of_payload > 0) payload_ += of_payload;
  return active() ? Io::Blocked : Io::Moved;
}

size_t PieceReader::begin_payload(void* target, size_t bytes) {
  begin_ += kHeaderBytes;
  const size_t buffered = std::min(bytes, end_ - begin_);
  if (buffered > 0) std::memcpy(target, buffer_.data() + begin_, buffered);
  begin_ += buffered;
  left_ = bytes - buffered;
  target_ = left_ > 0 ? static_cast<std::byte*>(target) + buffered : nullptr;
  return buffered;
}

Io PieceReader::read(int fd, size_t* payload, bool* full) {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t direct = std::min(left_, kMaxRead);
  const size_t ahead = direct == left_ ? buffer_.size() - end_ : 0;
  iovec parts[2] = {{target_, direct}, {buffer_.data() + end_, ahead}};
  const ssize_t got =
      left_ > 0 ? ::readv(fd, parts, ahead > 0 ? 2 : 1) : ::recv(fd, parts[1].iov_base, ahead, 0);
  *payload = 0;
  *full = false;
  if (got == 0) return Io::Closed;
  if (got < 0) return would_block(errno) ? Io::Blocked : Io::Failed;
  *full = static_cast<size_t>(got) == direct + ahead;
  *payload = std::min(static_cast<size_t>(got), direct);
  left_ -= *payload;
  target_ = left_ > 0 ? target_ + *payload : nullptr;
  end_ += static_cast<size_t>(got) - *payload;
  return Io::Moved;
}

}  // namespace hetccl::transport::tcp
