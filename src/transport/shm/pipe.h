// The two directions of a channel's segment as this end sees them: byte streams with bounds that
// the other process cannot move.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/shm/segment.h"

namespace hetccl {
class Crew;
}

namespace hetccl::transport::shm {

/// The writing end of a ring. What is written shows to the reader at `publish`.
class RingWriter {
 public:
  explicit RingWriter(Ring& ring) : ring_(ring) {}
  /// Free bytes; refreshed from the reader where there seem to be fewer than `wanted`.
  size_t room(size_t wanted);
  /// `bytes` must not exceed the room. `crew` (may be null) helps.
  void write(const void* data, size_t bytes, Crew* crew = nullptr);
  void publish() { ring_.written.store(written_); }

 private:
  Ring& ring_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;  // the reader's counter when last seen
};

/// The reading end.
class RingReader {
 public:
  explicit RingReader(Ring& ring) : ring_(ring) {}
  /// Bytes that can be read; refreshed from the writer where there seem to be fewer than `wanted`.
  /// More than the ring holds means that the other end is broken: `sane()` is false then.
  size_t available(size_t wanted);
  [[nodiscard]] bool sane() const { return written_ - read_ <= kRingBytes; }
  void read(void* out, size_t bytes, Crew* crew = nullptr);
  /// The same, and leaves it to be read.
  void peek(void* out, size_t bytes) const { RingReader(*this).read(out, bytes); }
  void publish() { ring_.read.store(read_); }

 private:
  Ring& ring_;
  uint64_t read_ = 0;
  uint64_t written_ = 0;  // the writer's counter when last seen
};

}  // namespace hetccl::transport::shm
