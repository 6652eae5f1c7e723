#include "transport/shm/pipe.h"

#include <algorithm>
#include <cstring>

#include "host/crew.h"

namespace hetccl::transport::shm {

namespace {

// Copies both parts of a range that wraps at the ring's end.
void copy(const Copy& first, const Copy& second, Crew* crew) {
  if (crew != nullptr) {
    const Copy both[] = {first, second};
    return crew->copy(both);
  }
  if (first.bytes > 0) std::memcpy(first.dst, first.src, first.bytes);
  if (second.bytes > 0) std::memcpy(second.dst, second.src, second.bytes);
}

}  // namespace

size_t RingWriter::room(size_t wanted) {
  if (kRingBytes - (written_ - read_) < wanted) {
    const uint64_t read = ring_.read.load();
    // Ignore a counter that exceeds what was written, or goes back: the room stays as it was.
    if (written_ - read <= kRingBytes) read_ = read;
  }
  return kRingBytes - (written_ - read_);
}

void RingWriter::write(const void* data, size_t bytes, Crew* crew) {
  const size_t at = written_ % kRingBytes;
  const size_t first = std::min(bytes, kRingBytes - at);
  const auto* from = static_cast<const std::byte*>(data);
  copy({ring_.bytes + at, from, first}, {ring_.bytes, from + first, bytes - first}, crew);
  written_ += bytes;
}

size_t RingReader::available(size_t wanted) {
  if (written_ - read_ < wanted) written_ = ring_.written.load();
  return written_ - read_;
}

void RingReader::read(void* out, size_t bytes, Crew* crew) {
  const size_t at = read_ % kRingBytes;
  const size_t first = std::min(bytes, kRingBytes - at);
  auto* to = static_cast<std::byte*>(out);
  copy({to, ring_.bytes + at, first}, {to + first, ring_.bytes, bytes - first}, crew);
  read_ += bytes;
}

}  // namespace hetccl::transport::shm
