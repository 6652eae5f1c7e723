#include "transport/tcp/stream.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace hetccl::transport::tcp {

namespace {

// The most that one call may read, because the engine drives other ranks too.
constexpr size_t kMaxRead = 512 << 10;
// The most pieces of memory of one call. A list of shorter pieces takes several calls.
constexpr size_t kMostParts = 256;

}  // namespace

void PieceWriter::start(const Header& header, const Extent& payload) {
  encode(header, header_.data());
  message_ = header.number;
  payload_ = payload;
  left_header_ = kHeaderBytes;
}

Io PieceWriter::write(net::Wire& wire, size_t* written) {
  std::array<iovec, kMostParts> parts;
  *written = 0;
  while (active()) {
    const size_t first = left_header_ > 0 ? 1 : 0;
    if (first > 0) parts[0] = {header_.data() + (kHeaderBytes - left_header_), left_header_};
    size_t of_payload = 0;
    const size_t n = payload_.describe(std::span(parts).subspan(first), SIZE_MAX, &of_payload);
    const size_t offered = left_header_ + of_payload;
    size_t taken = 0;
    const Io result = wire.write({parts.data(), first + n}, &taken);
    if (result == Io::Failed) return result;
    *written += taken;
    const size_t of_header = std::min(taken, left_header_);
    left_header_ -= of_header;
    payload_.advance(taken - of_header);
    if (taken < offered) return Io::Blocked;
  }
  return Io::Moved;
}

size_t PieceReader::begin_payload(const Extent& target) {
  begin_ += kHeaderBytes;
  target_ = target;
  const size_t buffered = std::min(target.bytes(), end_ - begin_);
  for (const size_t end = begin_ + buffered; begin_ < end;) {
    const size_t bytes = std::min(end - begin_, target_.front().size());
    std::memcpy(target_.front().data(), buffer_.data() + begin_, bytes);
    target_.advance(bytes);
    begin_ += bytes;
  }
  return buffered;
}

Io PieceReader::read(net::Wire& wire, bool from_socket, size_t* payload, bool* more) {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  std::array<iovec, kMostParts + 1> parts;
  size_t direct = 0;
  size_t n = target_.describe(std::span(parts).first(kMostParts), kMaxRead, &direct);
  const size_t ahead = direct == target_.bytes() ? buffer_.size() - end_ : 0;
  if (ahead > 0) parts[n++] = {buffer_.data() + end_, ahead};
  size_t got = 0;
  const std::span<const iovec> into(parts.data(), n);
  const Io result = from_socket ? wire.read(into, &got) : wire.read_pending(into, &got);
  *payload = std::min(got, direct);
  target_.advance(*payload);
  end_ += got - *payload;
  *more = got == direct + ahead || wire.pending();
  return result;
}

}  // namespace hetccl::transport::tcp
