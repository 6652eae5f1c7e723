// An endpoint's notifications, from all peers, until the user takes them. Bounded: while it is
// full, links stop reading.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "onesided/protocol.h"

namespace hetccl::onesided {

/// Thread-safe.
class Mailbox {
 public:
  struct Letter {
    uint64_t peer = 0;
    Bytes bytes;
  };
  static constexpr size_t kMost = 16'384;
  static constexpr size_t kMostBytes = size_t{64} << 20;

  [[nodiscard]] bool has_room() const { return has_room_.load(std::memory_order_acquire); }
  [[nodiscard]] bool empty() const { return n_.load(std::memory_order_acquire) == 0; }
  [[nodiscard]] size_t size() const { return n_.load(std::memory_order_relaxed); }
  /// Also accepts a letter when full. A link asks `has_room` before it reads, so each link exceeds
  /// the bound by at most one.
  void put(Letter letter) {
    const std::lock_guard lock(mutex_);
    bytes_ += letter.bytes.size();
    letters_.push_back(std::move(letter));
    count();
  }
  /// Sets `makes_room` if links had stopped reading.
  std::optional<Letter> take(bool* makes_room) {
    const std::lock_guard lock(mutex_);
    if (letters_.empty()) return {};
    Letter first = std::move(letters_.front());
    letters_.pop_front();
    bytes_ -= first.bytes.size();
    const bool was_full = !has_room();
    count();
    *makes_room = was_full && has_room();
    return first;
  }

 private:
  void count() {
    n_.store(letters_.size(), std::memory_order_release);
    has_room_.store(letters_.size() < kMost && bytes_ < kMostBytes, std::memory_order_release);
  }

  std::mutex mutex_;
  std::deque<Letter> letters_;
  size_t bytes_ = 0;
  std::atomic<size_t> n_{0};
  std::atomic<bool> has_room_{true};
};

}  // namespace hetccl::onesided
