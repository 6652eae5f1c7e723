// The memory that two ranks share, as rings of messages: where each lies, from lengths alone, so
// that both ends compute the same.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/fifo.h"

namespace hetccl::lower {

/// One direction: a ring of messages, each in one piece. `place` by one thread.
class Ring {
 public:
  static constexpr size_t kGrain = 512;  ///< messages begin at multiples of it

  struct Placement {
    size_t offset = 0;
    /// So many messages must have been read before this one is written, counted modulo 2^32; none:
    /// the ring has had room so far.
    std::optional<uint32_t> needed;
  };

  /// `number`: of the messages that count as read already.
  explicit Ring(size_t bytes, uint32_t number = 0) : bytes_(bytes), number_(number) {}
  /// Bytes of each of the two rings in a window of so many bytes, which begins with `kHead` others.
  [[nodiscard]] static size_t bytes_of_window(size_t window);
  static constexpr size_t kHead = 4096;

  /// What a message takes here.
  [[nodiscard]] static size_t room(size_t bytes);
  /// Whether messages that take `bytes` together may lie in a ring of `ring_bytes`, beside others.
  [[nodiscard]] static bool fits(size_t bytes, size_t ring_bytes) {
    return bytes <= ring_bytes / 2;
  }
  /// So many slices before its own may be unread when a message is written, of slices whose
  /// messages take `bytes` together and fit: a ring may skip as much where it begins anew.
  [[nodiscard]] static size_t slices_unread(size_t bytes, size_t ring_bytes) {
    return std::max<size_t>(ring_bytes / std::max(bytes, kGrain), 2) - 2;
  }
  /// Places the next message.
  Placement place(size_t bytes);
  /// Its `needed`, if it takes `bytes`.
  [[nodiscard]] std::optional<uint32_t> needed_for(size_t bytes) const;
  /// Messages so far, modulo 2^32. Thread-safe.
  [[nodiscard]] uint32_t number() const { return number_.load(std::memory_order_relaxed); }

 private:
  struct Unread {
    uint32_t number = 0;
    uint64_t begin = 0;
  };
  /// Where a message of `length` begins next: it lies in one piece.
  [[nodiscard]] uint64_t begin_of(uint64_t length) const;

  size_t bytes_;
  uint64_t end_ = 0;  // of all messages, as if the ring had no end
  std::atomic<uint32_t> number_;
  std::optional<uint32_t> needed_;
  Fifo<Unread> unread_;  // messages of some length that may still be
};

}  // namespace hetccl::lower
