// The two directions of a channel's segment as this end sees them: byte streams whose bounds the
// other process cannot change.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/shm/segment.h"

namespace hetccl {
class Crew;
}

namespace hetccl::transport::shm {

/// The writing end of a ring. `publish` makes written bytes visible to the reader.
class RingWriter {
 public:
  explicit RingWriter(Ring& ring) : ring_(ring) {}
  /// Returns the free bytes. Reads the reader's counter again if fewer than `wanted` seem free.
  size_t room(size_t wanted);
  /// `bytes` must fit into the room. `crew` (may be null) helps.
  void write(const void* data, size_t bytes, Crew* crew = nullptr);
  void publish() { ring_.written.store(written_); }

 private:
  Ring& ring_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;  // the reader's counter as last seen
};

/// The reading end.
class RingReader {
 public:
  explicit RingReader(Ring& ring) : ring_(ring) {}
  /// Returns the bytes that can be read. Reads the writer's counter again if there seem to be fewer
  /// than `wanted`. More than the ring holds means that the other end is broken: `sane()` is false
  /// then.
  size_t available(size_t wanted);
  [[nodiscard]] bool sane() const { return written_ - read_ <= kRingBytes; }
  void read(void* out, size_t bytes, Crew* crew = nullptr);
  /// Like `read`, but the bytes stay in the ring.
  void peek(void* out, size_t bytes) const { RingReader(*this).read(out, bytes); }
  void publish() { ring_.read.store(read_); }

 private:
  Ring& ring_;
  uint64_t read_ = 0;
  uint64_t written_ = 0;  // the writer's counter as last seen
};

}  // namespace hetccl::transport::shm
