// Times log lines of a thread that waits for a peer, so that a wait of a minute is not silent.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace hetccl::net {

/// Due after ten seconds of waiting, and every ten after that. One thread at a time.
class Reminder {
 public:
  static constexpr std::chrono::seconds kPeriod{10};
  /// Starts the wait.
  explicit Reminder(const Clock& clock = steady_clock())
      : clock_(clock), begin_(clock.now()), next_(begin_ + kPeriod) {}

  /// Returns true once per period; the caller then logs what it waits for.
  [[nodiscard]] bool is_due() {
    const TimePoint now = clock_.now();
    if (now < next_) return false;
    next_ = now + kPeriod;
    return true;
  }
  /// Returns when it is due next.
  [[nodiscard]] TimePoint next() const { return next_; }
  /// Returns how long the wait has lasted, in whole seconds.
  [[nodiscard]] int64_t seconds() const {
    return std::chrono::floor<std::chrono::seconds>(clock_.now() - begin_).count();
  }

 private:
  const Clock& clock_;
  const TimePoint begin_;
  TimePoint next_;
};

/// The remedy if ranks do not reach each other's ports: the end of a log line or error.
inline constexpr const char* kReachRemedy =
    "open the ports of HETCCL_PORT_RANGE in every host's firewall, or choose an interface that all "
    "hosts reach with HETCCL_SOCKET_IFNAME";

}  // namespace hetccl::net
