#include "transport/tcp/stream.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>

namespace hetccl::transport::tcp {

namespace {

// The most that one call may read, because the engine drives other ranks too.
constexpr size_t kMaxRead = 512 << 10;

}  // namespace

void PieceWriter::start(const Header& header, const void* payload) {
  encode(header, header_.data());
  message_ = header.number;
  payload_ = static_cast<const std::byte*>(payload);
  left_header_ = kHeaderBytes;
  left_payload_ = header.bytes;
}

Io PieceWriter::write(net::Wire& wire, size_t* written) {
  const iovec parts[2] = {{header_.data() + (kHeaderBytes - left_header_), left_header_},
                          {const_cast<std::byte*>(payload_), left_payload_}};
  const Io result = wire.write(
      {left_header_ > 0 ? parts : parts + 1,
       (left_header_ > 0 ? size_t{1} : size_t{0}) + (left_payload_ > 0 ? size_t{1} : size_t{0})},
      written);
  if (result == Io::Failed) return result;
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

Io PieceReader::read(net::Wire& wire, bool from_socket, size_t* payload, bool* more) {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t direct = std::min(left_, kMaxRead);
  const size_t ahead = direct == left_ ? buffer_.size() - end_ : 0;
  const iovec parts[2] = {{target_, direct}, {buffer_.data() + end_, ahead}};
  const std::span<const iovec> into(
      direct > 0 ? parts : parts + 1,
      (direct > 0 ? size_t{1} : size_t{0}) + (ahead > 0 ? size_t{1} : size_t{0}));
  size_t got = 0;
  const Io result = from_socket ? wire.read(into, &got) : wire.read_pending(into, &got);
  *payload = std::min(got, direct);
  left_ -= *payload;
  target_ = left_ > 0 ? target_ + *payload : nullptr;
  end_ += got - *payload;
  *more = got == direct + ahead || wire.pending();
  return result;
}

}  // namespace hetccl::transport::tcp
