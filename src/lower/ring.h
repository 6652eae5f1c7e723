// Rings of messages in the memory that two ranks share. Placement depends only on lengths, so both
// ends compute the same.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/fifo.h"

namespace hetccl::lower {

/// A ring of messages in one direction; each message is contiguous. Only one thread calls `place`.
class Ring {
 public:
  static constexpr size_t kGrain = 512;  ///< alignment of messages

  struct Placement {
    size_t offset = 0;
    /// Number (modulo 2^32) of the message that must have been read before this one is written;
    /// none: the ring has had room so far.
    std::optional<uint32_t> needed;
  };

  /// `number`: number of messages already counted as read.
  explicit Ring(size_t bytes, uint32_t number = 0) : bytes_(bytes), number_(number) {}
  /// Bytes of each of the two rings in a window of `window` bytes. The first `kHead` bytes of the
  /// window belong to neither.
  [[nodiscard]] static size_t bytes_of_window(size_t window);
  static constexpr size_t kHead = 4096;

  /// Room that a message needs in the ring.
  [[nodiscard]] static size_t room(size_t bytes);
  /// Whether messages that need `bytes` together may use a ring of `ring_bytes`, beside other
  /// slices' messages.
  [[nodiscard]] static bool fits(size_t bytes, size_t ring_bytes) {
    return bytes <= ring_bytes / 2;
  }
  /// Number of preceding slices that may be unread when a message is written, if the messages of a
  /// slice need `bytes` together and fit. The ring may skip as many bytes when it wraps around.
  [[nodiscard]] static size_t slices_unread(size_t bytes, size_t ring_bytes) {
    return std::max<size_t>(ring_bytes / std::max(bytes, kGrain), 2) - 2;
  }
  /// Places the next message.
  Placement place(size_t bytes);
  /// Returns `needed` of the next message, if it has `bytes`.
  [[nodiscard]] std::optional<uint32_t> needed_for(size_t bytes) const;
  /// Number of messages so far, modulo 2^32. Thread-safe.
  [[nodiscard]] uint32_t number() const { return number_.load(std::memory_order_relaxed); }

 private:
  struct Unread {
    uint32_t number = 0;
    uint64_t begin = 0;
  };
  /// Begin of the next message of `length`. Skips the ring's end if the message does not fit
  /// there.
  [[nodiscard]] uint64_t begin_of(uint64_t length) const;

  size_t bytes_;
  uint64_t end_ = 0;  // end of the last message, as if the ring were unbounded
  std::atomic<uint32_t> number_;
  std::optional<uint32_t> needed_;
  Fifo<Unread> unread_;  // non-empty messages that may be unread
};

}  // namespace hetccl::lower
