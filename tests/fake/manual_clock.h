// A clock that stands still until a test sets it.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace hetccl::fake {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return time; }
  TimePoint time{std::chrono::hours(1)};
};

}  // namespace hetccl::fake
