#include "tune/search.h"

#include <algorithm>
#include <cmath>

namespace hetccl::tune {

Search::Search(Space space, Point from, size_t most_trials, double gain)
    : space_(std::move(space)),
      most_trials_(most_trials),
      gain_(gain),
      best_(std::move(from)),
      descended_(space_.size(), false) {
  tried_[best_] = 1;
}

std::optional<Point> Search::next() {
  if (asked_) return asked_;
  if (trials_ >= most_trials_) return std::nullopt;
  asked_ = find_untried_start();
  if (!asked_) asked_ = descend();
  return asked_;
}

void Search::score(double ratio) {
  const Point point = *asked_;
  asked_.reset();
  ++trials_;
  const double time = ratio * tried_[best_];
  tried_[point] = time;
  if (!descent_) best_start_ = std::min(best_start_, time);
  if (ratio < 1 - gain_) best_ = point;
  if (!descent_) return;
  step(time < tried_[descent_->at] * (1 - gain_));
}

// Returns the start of a subspace that has not been tried.
std::optional<Point> Search::find_untried_start() const {
  if (descent_) return std::nullopt;
  for (size_t i = 0; i < space_.size(); ++i) {
    const Point start = start_of(space_, i);
    const bool known = std::any_of(tried_.begin(), tried_.end(),
                                   [&](const auto& entry) { return entry.first.subspace == i; });
    if (!known) return start;
  }
  return std::nullopt;
}

std::optional<Point> Search::descend() {
  while (descent_ || begin_descent()) {
    if (descent_->idle_axes >= space_[descent_->at.subspace].axes.size()) {
      descent_.reset();
      continue;
    }
    auto point = neighbour();
    if (!point) {
      turn();
    } else if (const auto known = tried_.find(*point); known != tried_.end()) {
      step(known->second < tried_[descent_->at] * (1 - gain_));
    } else {
      return point;
    }
  }
  return std::nullopt;
}

// Begins a descent in the best remaining subspace, from its best point. Compares starts with
// starts, because tuned points are faster than untuned ones.
bool Search::begin_descent() {
  const std::pair<const Point, double>* from = nullptr;
  for (const auto& entry : tried_) {
    if (descended_[entry.first.subspace] || entry.second > kPruned * best_start_) continue;
    if (from == nullptr || entry.second < from->second) from = &entry;
  }
  if (from == nullptr) return false;
  descended_[from->first.subspace] = true;
  descent_.emplace();
  descent_->at = from->first;
  return true;
}

std::optional<Point> Search::neighbour() const {
  Point point = descent_->at;
  const auto& values = space_[point.subspace].axes[descent_->axis].values;
  size_t& at = point.at[descent_->axis];
  const size_t room = descent_->upward ? values.size() - 1 - at : at;
  if (room == 0) return std::nullopt;
  const size_t stride = std::min(descent_->stride, room);
  at = descent_->upward ? at + stride : at - stride;
  return point;
}

// Doubles the stride while it gains; then tries a short one again.
void Search::step(bool better) {
  Descent& descent = *descent_;
  if (better) {
    descent.at = *neighbour();
    descent.moved = true;
    descent.stride *= 2;
  } else if (descent.stride > 1) {
    descent.stride = 1;
  } else {
    turn();
  }
}

// Turns to the other direction, or to the next axis.
void Search::turn() {
  Descent& descent = *descent_;
  descent.stride = 1;
  if (descent.upward && !descent.moved) {
    descent.upward = false;
    return;
  }
  descent.idle_axes = descent.moved ? 1 : descent.idle_axes + 1;
  descent.upward = true;
  descent.moved = false;
  descent.axis = (descent.axis + 1) % space_[descent.at.subspace].axes.size();
}

}  // namespace hetccl::tune
