// Measures the phases of trials. NCCL tells a tuner when a call is enqueued but not when it
// completes, so a phase lasts until the first call of the next phase.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "tune/ledger.h"

namespace hetccl::nccl_tuner {

/// Not thread-safe. Pure: the caller passes the time.
class Meter {
 public:
  /// Called before each call. Returns the times of the key's trial at the first call after the
  /// trial.
  std::optional<tune::Samples> call(const tune::Key& key,
                                    const std::optional<tune::Ledger::Use::Trial>& trial,
                                    TimePoint now);

 private:
  struct Course {
    uint64_t round = 0;  // 0: no trial
    uint32_t change = 0, phase = 0, phases = 0;
    TimePoint since;
    std::vector<double> us;
  };
  std::map<tune::Key, Course> courses_;
};

}  // namespace hetccl::nccl_tuner
