#include "nccl-tuner/meter.h"

namespace hetccl::nccl_tuner {

std::optional<tune::Samples> Meter::call(const tune::Key& key,
                                         const std::optional<tune::Ledger::Use::Trial>& trial,
                                         TimePoint now) {
  Course& course = courses_[key];
  const bool same = trial && trial->round == course.round && trial->change == course.change;
  if (course.round != 0 && same && trial->phase == course.phase) return std::nullopt;
  std::optional<tune::Samples> samples;
  if (course.round != 0) {
    course.us.push_back(std::chrono::duration<double, std::micro>(now - course.since).count());
    if (!same && course.us.size() == course.phases)
      samples = {course.round, course.change, std::move(course.us)};
  }
  if (!same) course.us.clear();
  course.round = trial ? trial->round : 0;
  if (trial) {
    course.change = trial->change;
    course.phase = trial->phase;
    course.phases = trial->phases;
    course.since = now;
  }
  return samples;
}

}  // namespace hetccl::nccl_tuner
