// How long a peer has been silent, as seen by regular checks.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace hetccl::bootstrap {

/// Sums the time between checks in which nothing was heard. A check that comes late counts as one
/// that came in time: what stalled this process (an overloaded machine, SIGSTOP) may have stalled
/// the peer's heartbeats as well, above all those that the same thread sends.
class Silence {
 public:
  explicit Silence(TimePoint now) : checked_(now) {}
  /// A check at `now`, `period` after the one before, of a peer last heard at `heard`.
  void check(TimePoint now, TimePoint heard, Duration period) {
    length_ = heard >= checked_ ? std::min(now - heard, period)
                                : length_ + std::min(now - checked_, period);
    checked_ = now;
  }
  [[nodiscard]] Duration length() const { return length_; }
  /// The peer was heard after all.
  void forget() { length_ = Duration(); }

 private:
  TimePoint checked_;
  Duration length_{};
};

}  // namespace hetccl::bootstrap
