// When somebody who waits for a peer says so in the log: a wait of a minute must not be silent.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace hetccl::net {

/// Due after ten seconds of waiting, and again every ten. One thread at a time.
class Reminder {
 public:
  static constexpr std::chrono::seconds kPeriod{10};
  /// The wait begins now.
  explicit Reminder(const Clock& clock = steady_clock())
      : clock_(clock), begin_(clock.now()), next_(begin_ + kPeriod) {}

  /// True once per period: the caller logs for what it waits.
  [[nodiscard]] bool is_due() {
    const TimePoint now = clock_.now();
    if (now < next_) return false;
    next_ = now + kPeriod;
    return true;
  }
  /// When it is due.
  [[nodiscard]] TimePoint next() const { return next_; }
  /// How long the wait has taken, in whole seconds.
  [[nodiscard]] int64_t seconds() const {
    return std::chrono::floor<std::chrono::seconds>(clock_.now() - begin_).count();
  }

 private:
  const Clock& clock_;
  const TimePoint begin_;
  TimePoint next_;
};

/// What a user does where ranks do not reach each other's ports: the end of a log line or an error.
inline constexpr const char* kReachRemedy =
    "open the ports of HETCCL_PORT_RANGE in every host's firewall, or choose an interface that all "
    "hosts reach with HETCCL_SOCKET_IFNAME";

}  // namespace hetccl::net
