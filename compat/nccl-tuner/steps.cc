#include "nccl-tuner/steps.h"

#include <algorithm>

namespace hetccl::nccl_tuner {
namespace {

// A period counts once it has come kRepeats times and over kEvidence calls: calls may repeat within
// a step, too.
constexpr size_t kRepeats = 3, kEvidence = 64;
constexpr uint64_t kSearchEvery = 16;

}  // namespace

bool Steps::begins(uint64_t call, TimePoint now) {
  if (history_.empty()) history_.resize(kRepeats * kMostPeriod);
  history_[n_calls_++ % history_.size()] = call;
  if (period_ != 0) {
    if (at(0) == at(period_)) return count(now);
    period_ = 0;
    next_search_ = n_calls_ + kSearchEvery;
  }
  if (n_calls_ >= next_search_) {
    search();
    measured_from_ = now;
  }
  return false;
}

// Counts calls of a step. The time of the first period decides how many periods make a step.
bool Steps::count(TimePoint now) {
  ++in_step_;
  if (together_ == 0) {
    if (in_step_ < period_) return false;
    const Duration took = std::max<Duration>(now - measured_from_, std::chrono::microseconds(1));
    const auto wanted = static_cast<uint64_t>(kLeastStep / took) + 1;
    together_ = std::clamp<uint64_t>(wanted, 1, std::max<uint64_t>(kMostTogether / period_, 1));
    in_step_ = 0;
    return true;
  }
  if (in_step_ < together_ * period_) return false;
  in_step_ = 0;
  return true;
}

uint64_t Steps::at(size_t ago) const {
  return history_[(n_calls_ - 1 - ago) % history_.size()];
}

bool Steps::repeats(size_t period) const {
  const size_t alike = std::max((kRepeats - 1) * period, kEvidence);
  if (alike + period > n_calls_) return false;
  for (size_t i = 0; i < alike; ++i)
    if (at(i) != at(i + period)) return false;
  return true;
}

// Searches less often the longer it finds nothing, so a program without steps pays little.
void Steps::search() {
  next_search_ = n_calls_ + std::max(kSearchEvery, std::min<uint64_t>(n_calls_ / 8, 512));
  const size_t known = std::min<uint64_t>(n_calls_, history_.size());
  for (size_t period = 1; kRepeats * period <= known; ++period) {
    if (!repeats(period)) continue;
    period_ = period;
    together_ = 0;
    in_step_ = 0;
    return;
  }
}

}  // namespace hetccl::nccl_tuner
