// How much a transfer sends in its turn, and how much is sent ahead: less on a slow link, so that a
// short transfer does not wait long behind a long one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

#include "base/clock.h"

namespace hetccl::onesided {

/// Measures the speed of a link while it is busy. Used under the link's lock.
class Pace {
 public:
  /// Bytes of a turn: what the link moves in kTurn, at least kLeast, of which it is a multiple, and
  /// at most kMost; kFirst until the speed has been measured.
  [[nodiscard]] size_t bytes() const { return bytes_; }
  /// Bytes to post before the first of them have completed: two turns, and what the link moves
  /// within its delay. Without the latter, a distant peer's completions would limit the speed, and
  /// the speed the turns.
  [[nodiscard]] size_t ahead() const { return 2 * bytes_ + under_way_; }
  /// Notes that a message completed `delay` after it was posted. The least delay is the link's; it
  /// is short where a message completes once the kernel has it, and a round trip where the peer
  /// acknowledges it.
  void note_delay(Duration delay) { delay_ = std::min(delay_.value_or(delay), delay); }
  /// Counts bytes that have left, or arrived, by `now`.
  void count(size_t bytes, TimePoint now) {
    if (!since_) since_ = now;
    moved_ += bytes;
    const Duration time = now - *since_, delay = delay_.value_or(Duration{});
    if (time < std::max<Duration>(kWindow, delay) || moved_ < kEnough) return;
    const auto moves_in = [&](Duration span) {
      return static_cast<double>(moved_) * std::chrono::duration<double>(span) / time;
    };
    const double parts = std::min(moves_in(kTurn) / double{kLeast}, double{kMost / kLeast});
    bytes_ = std::max<size_t>(static_cast<size_t>(parts), 1) * kLeast;
    under_way_ = static_cast<size_t>(std::min(moves_in(delay), double{kMostUnderWay}));
    since_ = now;
    moved_ = 0;
  }
  /// Call when nothing waits to leave, or arrive: idle time says nothing about the link.
  void rest() {
    since_.reset();
    moved_ = 0;
  }

  static constexpr size_t kLeast = size_t{1} << 20;
  static constexpr size_t kFirst = size_t{8} << 20;
  static constexpr size_t kMost = size_t{16} << 20;
  static constexpr size_t kMostUnderWay = size_t{128} << 20;
  static constexpr std::chrono::milliseconds kTurn{4};

 private:
  static constexpr std::chrono::milliseconds kWindow{2};
  static constexpr size_t kEnough = size_t{64} << 10;  // fewer bytes may have waited for a thread

  size_t bytes_ = kFirst;
  size_t under_way_ = 0;            // bytes that the link moves within its delay
  std::optional<Duration> delay_;   // the least, once a message has completed
  size_t moved_ = 0;                // since `since_`
  std::optional<TimePoint> since_;  // start of the window
};

}  // namespace hetccl::onesided
