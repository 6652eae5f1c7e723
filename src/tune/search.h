// Searches for one key's best setting by comparisons alone: paper 004's coordinate descent inside
// subspaces, and its pruning of subspaces that are far behind.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "tune/space.h"

namespace hetccl::tune {

/// Pure: no clock, no randomness. Call `next`, then `score`, until `next` returns nothing.
class Search {
 public:
  static constexpr size_t kMostTrials = 60;
  /// A point must be faster by this share to replace the best.
  static constexpr double kGain = 0.02;
  /// Skips a subspace whose start takes this many times as long as the best start.
  static constexpr double kPruned = 1.5;

  /// `from`: the best point so far, whose time counts as 1.
  Search(Space space, Point from, size_t most_trials = kMostTrials, double gain = kGain);

  /// Returns the point to compare with the best; nothing when the search is over. Stays the same
  /// until `score`.
  [[nodiscard]] std::optional<Point> next();
  /// Scores that point: its time divided by the best's in the same calls; infinity if it could not
  /// run.
  void score(double ratio);
  [[nodiscard]] const Point& best() const { return best_; }
  [[nodiscard]] const Space& space() const { return space_; }
  [[nodiscard]] size_t trials() const { return trials_; }
  [[nodiscard]] bool over() { return !next().has_value(); }
  /// Returns each tried point's time, relative to the point it started from.
  [[nodiscard]] const std::map<Point, double>& tried() const { return tried_; }

 private:
  // A descent along one axis after the other, from one point.
  struct Descent {
    Point at;
    size_t axis = 0;
    bool upward = true;
    size_t stride = 1;
    size_t idle_axes = 0;  // consecutive axes without a gain
    bool moved = false;    // along this axis and direction
  };
  [[nodiscard]] std::optional<Point> find_untried_start() const;
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
  double best_start_ = 1;  // over all subspaces
  std::optional<Point> asked_;
  std::optional<Descent> descent_;
  std::vector<bool> descended_;  // by subspace
};

}  // namespace hetccl::tune
