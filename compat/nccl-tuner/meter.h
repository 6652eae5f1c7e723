// How long the phases of trials take: NCCL tells a tuner of a call when it is enqueued, and nothing
// when it is complete, so a phase lasts until the first call of the next.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "tune/ledger.h"

namespace hetccl::nccl_tuner {

/// Not thread-safe. Pure: the clock is the caller's.
class Meter {
 public:
  /// Before each call. The times of the key's trial, once the call after its last has come.
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
