// Injected time, so that tests can advance it by hand.
#pragma once

#include <chrono>

namespace hetccl {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// Monotonic time. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const = 0;
};

/// The machine's steady clock.
const Clock& steady_clock();

}  // namespace hetccl
