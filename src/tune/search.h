// The search for one key's best setting, by comparisons alone: paper 004's coordinate descent
// inside subspaces, and its pruning of subspaces that are far behind.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "tune/space.h"

namespace hetccl::tune {

/// Pure: no clock, no chance. `next`, then `score`, until `next` gives nothing.
class Search {
 public:
  static constexpr size_t kMostTrials = 60;
  /// A point must be that much faster to replace the best.
  static constexpr double kGain = 0.02;
  /// A subspace is left out where its start takes that many times as long as the best start.
  static constexpr double kPruned = 1.5;

  /// `from`: the best so far, which is taken to be 1.
  Search(Space space, Point from, size_t most_trials = kMostTrials, double gain = kGain);

  /// The point to try beside the best; nothing when the search is over. The same until `score`.
  [[nodiscard]] std::optional<Point> next();
  /// Its time, divided by the best's in the same calls; infinity where it could not be tried.
  void score(double ratio);
  [[nodiscard]] const Point& best() const { return best_; }
  [[nodiscard]] const Space& space() const { return space_; }
  [[nodiscard]] size_t trials() const { return trials_; }
  [[nodiscard]] bool over() { return !next().has_value(); }
  /// What each point that was tried takes, relative to the point it started from.
  [[nodiscard]] const std::map<Point, double>& tried() const { return tried_; }

 private:
  // Along one axis after the other, from one point.
  struct Descent {
    Point at;
    size_t axis = 0;
    bool upward = true;
    size_t stride = 1;
    size_t idle_axes = 0;  // in a row that gave nothing
    bool moved = false;    // along this axis and direction
  };
  [[nodiscard]] std::optional<Point> scout() const;
  std::optional<Point> descend();
  [[nodiscard]] std::optional<Point> neighbour() const;
  void step(bool better);
  void turn();
  bool begin_descent();

  Space space_;
  size_t most_trials_;
  double gain_;
  size_t trials_ = 0;
  Point best_;
  std::map<Point, double> tried_;
  double best_start_ = 1;  // of all subspaces
  std::optional<Point> asked_;
  std::optional<Descent> descent_;
  std::vector<bool> descended_;  // by subspace
};

}  // namespace hetccl::tune
