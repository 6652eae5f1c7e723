#include "transport/shm/pipe.h"

#include <algorithm>
#include <cstring>

namespace hetccl::transport::shm {

size_t RingWriter::room(size_t wanted) {
  if (kRingBytes - (written_ - read_) < wanted) {
    const uint64_t read = ring_.read.load();
    // A counter that ran ahead of what was written, or back, is ignored: the room stays what it
    // was.
    if (written_ - read <= kRingBytes) read_ = read;
  }
  return kRingBytes - (written_ - read_);
}

void RingWriter::write(const void* data, size_t bytes) {
  const size_t at = written_ % kRingBytes;
  const size_t first = std::min(bytes, kRingBytes - at);
  const auto* from = static_cast<const std::byte*>(data);
  if (first > 0) std::memcpy(ring_.bytes + at, from, first);
  if (bytes > first) std::memcpy(ring_.bytes, from + first, bytes - first);
  written_ += bytes;
}

size_t RingReader::available(size_t wanted) {
  if (written_ - read_ < wanted) written_ = ring_.written.load();
  return written_ - read_;
}

void RingReader::read(void* out, size_t bytes) {
  const size_t at = read_ % kRingBytes;
  const size_t first = std::min(bytes, kRingBytes - at);
  auto* to = static_cast<std::byte*>(out);
  if (first > 0) std::memcpy(to, ring_.bytes + at, first);
  if (bytes > first) std::memcpy(to + first, ring_.bytes, bytes - first);
  read_ += bytes;
}

}  // namespace hetccl::transport::shm
