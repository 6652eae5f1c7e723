// An endpoint's notifications from all peers, until the user takes them. While the mailbox is full,
// links stop reading.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/status.h"
#include "base/waker.h"
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
  /// Takes the oldest letter, if there is one. Sets `makes_room` if links have stopped reading and
  /// may now go on.
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

  /// Returns a descriptor that polls readable while a letter waits, and from `note_loss` until
  /// `forget_losses`. It lives as long as the mailbox. SystemError if the process can open no more.
  Result<int> descriptor() {
    const std::lock_guard lock(mutex_);
    if (waker_ == nullptr) {
      HETCCL_ASSIGN(waker_, Waker::create());
      signal();
    }
    return waker_->fd();
  }
  /// Notes that a peer is lost.
  void note_loss() { set_loss(true); }
  void forget_losses() { set_loss(false); }

 private:
  void set_loss(bool lost) {
    const std::lock_guard lock(mutex_);
    lost_ = lost;
    signal();
  }
  // Requires mutex_.
  void signal() {
    const bool news = lost_ || !letters_.empty();
    if (waker_ == nullptr || news == signals_) return;
    news ? waker_->ring() : waker_->drain();
    signals_ = news;
  }
  void count() {
    n_.store(letters_.size(), std::memory_order_release);
    has_room_.store(letters_.size() < kMost && bytes_ < kMostBytes, std::memory_order_release);
    signal();
  }

  std::mutex mutex_;
  std::deque<Letter> letters_;
  size_t bytes_ = 0;
  bool lost_ = false;
  std::unique_ptr<Waker> waker_;  // made when somebody asks for the descriptor
  bool signals_ = false;          // it polls readable
  std::atomic<size_t> n_{0};
  std::atomic<bool> has_room_{true};
};

}  // namespace hetccl::onesided
