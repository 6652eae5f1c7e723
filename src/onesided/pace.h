// How much a transfer sends in its turn: less on a slow link, so that a short transfer does not
// wait long behind a long one.
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
  /// Bytes that the link moves in kTurn, at least kLeast, of which it is a multiple, and at most
  /// kMost; kFirst until it has been measured.
  [[nodiscard]] size_t bytes() const { return bytes_; }
  /// Counts bytes that have moved by `now`. The first after a rest only start the time, since
  /// nobody knows when they began to move.
  void count(size_t bytes, TimePoint now) {
    if (!since_) {
      if (bytes > 0) since_ = now;
      return;
    }
    moved_ += bytes;
    const Duration time = now - *since_;
    if (time < kWindow || moved_ < kEnough) return;
    const double rate = static_cast<double>(moved_) / std::chrono::duration<double>(time).count();
    const double turn = rate * std::chrono::duration<double>(kTurn).count();
    const auto parts = std::min(turn / double{kLeast}, double{kMost / kLeast});
    bytes_ = std::max<size_t>(static_cast<size_t>(parts), 1) * kLeast;
    since_ = now;
    moved_ = 0;
  }
  /// Call when nothing waits to move: idle time says nothing about the link.
  void rest() {
    since_.reset();
    moved_ = 0;
  }

  static constexpr size_t kLeast = size_t{1} << 20;
  static constexpr size_t kFirst = size_t{8} << 20;
  static constexpr size_t kMost = size_t{16} << 20;
  static constexpr std::chrono::milliseconds kTurn{4};

 private:
  static constexpr std::chrono::milliseconds kWindow{2};
  static constexpr size_t kEnough = size_t{64} << 10;  // fewer bytes may have waited for a thread

  size_t bytes_ = kFirst;
  size_t moved_ = 0;                // since `since_`
  std::optional<TimePoint> since_;  // start of the window
};

}  // namespace hetccl::onesided
