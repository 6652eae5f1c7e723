// Logs connections that a listener turned away, without letting strangers fill the log.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/log.h"

namespace hetccl::net {

/// Logs a few refusals at once, then one line per period, which counts the others. One thread at a
/// time.
class Refusals {
 public:
  /// `listener` is its name in the log: "the coordinator". `clock` must outlive this.
  Refusals(std::string listener, const Log& log, const Clock& clock = steady_clock())
      : listener_(std::move(listener)), log_(log), clock_(clock) {}

  /// Notes that a connection `from` an address was refused because of `why`.
  void add(const std::string& from, const std::string& why);

 private:
  const std::string listener_;
  const Log log_;
  const Clock& clock_;
  TimePoint period_begin_{};
  int shown_ = 0;           // in this period
  uint64_t not_shown_ = 0;  // since the last line
};

}  // namespace hetccl::net
