// Measures how long a peer has been silent, by regular checks.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace hetccl::bootstrap {

/// Adds up the periods between checks in which the peer was not heard. A late check counts as if it
/// had been in time: the cause of the delay (an overloaded machine, SIGSTOP) may also have delayed
/// the peer's heartbeats, above all those that this same thread sends.
class Silence {
 public:
  explicit Silence(TimePoint now) : checked_(now) {}
  /// Checks at `now`, due `period` after the previous check. The peer was last heard at `heard`.
  void check(TimePoint now, TimePoint heard, Duration period) {
    length_ = heard >= checked_ ? std::min(now - heard, period)
                                : length_ + std::min(now - checked_, period);
    checked_ = now;
  }
  [[nodiscard]] Duration length() const { return length_; }
  /// Resets the silence, because the peer was heard.
  void forget() { length_ = Duration(); }

 private:
  TimePoint checked_;
  Duration length_{};
};

}  // namespace hetccl::bootstrap
