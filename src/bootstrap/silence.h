// Measures how long a peer has been silent, by regular checks.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace hetccl::bootstrap {

/// Sums the time between checks in which nothing was heard. A late check counts as one in time:
/// whatever stalled this process (an overloaded machine, SIGSTOP) may also have stalled the peer's
/// heartbeats, above all those sent by this same thread.
class Silence {
 public:
  explicit Silence(TimePoint now) : checked_(now) {}
  /// Checks at `now`, `period` after the previous check, a peer last heard at `heard`.
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
