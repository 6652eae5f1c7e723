// Rank 0's part of tuning: decides which keys to search, which setting to try next, from which call
// a change holds, and how much time the search may cost.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "tune/note.h"
#include "tune/search.h"
#include "tune/trial.h"

namespace hetccl::tune {

/// The result of one key's search.
struct Learnt {
  Key key;
  Setting setting;
  uint64_t bytes = 0;     ///< of a block, in the timed calls
  double us = 0;          ///< of a whole call, as measured last
  double default_us = 0;  ///< with the cost model's setting
  uint32_t trials = 0;
};

struct ConductorOptions {
  int n_ranks = 1;
  double budget = 0.02;  ///< share of the time since the first call that trials may lose
  size_t most_trials = Search::kMostTrials;  ///< per key
  /// Minimises the program's steps (`step`) instead of the time of each call.
  bool by_steps = false;
  /// Timing slows calls down, so only some calls of settled keys are watched.
  bool timing_costs = false;
};

/// Not thread-safe. It may use its own clock, because other ranks are told of each decision.
class Conductor {
 public:
  explicit Conductor(ConductorOptions options) : options_(options) {}

  /// Makes the settings to search for a key. Called once for each key.
  using SpaceMaker = std::function<Space()>;
  /// Adds a result of an earlier job: the key is not searched again unless its time has changed.
  /// `told`: all ranks know the result; otherwise it is proposed.
  void add_learnt(const Learnt& learnt, bool told = true);
  /// Stops searching that key.
  void leave(const Key& key);
  /// Called before a call of `key` with blocks of `bytes`. May return a proposal.
  std::optional<Proposal> propose(const Key& key, uint64_t bytes, uint64_t sequence, TimePoint now,
                                  const SpaceMaker& make_space);
  /// Called when the program has finished a step. Keys that every step calls equally often are
  /// searched, one at a time.
  void step(TimePoint now);
  /// Counts a vote. Returns the verdict once all have voted yes, or one no.
  std::optional<Verdict> count(int rank, const Vote& vote);
  /// Returns the verdict for a rank in doubt. Cancels the round if it is still open.
  Verdict resolve(uint64_t round);
  /// Adds one rank's times of a trial. Needed from every rank.
  void add(int rank, const Samples& samples);
  /// Returns whether `watch` needs the time of the key's next call. Call once for each call.
  [[nodiscard]] bool wants_time(const Key& key);
  /// Adds the time of a call of `key` on this rank, outside trials.
  void watch(const Key& key, double us);

  /// Returns the results of finished searches.
  [[nodiscard]] std::vector<Learnt> learnt() const;
  /// Counts the keys whose search has ended, and those whose search has not.
  struct Progress {
    size_t settled = 0, unsettled = 0;
  };
  [[nodiscard]] Progress progress() const;
  /// Grows when there is a new result to keep.
  [[nodiscard]] uint64_t n_finished() const { return n_finished_; }
  /// Returns {keys: [{key, state, setting, us, default_us, trials, tried: [{setting, ratio}]}],
  /// rounds, cancelled, lost_us}.
  [[nodiscard]] Json describe() const;

 private:
  // The least gain in a whole step, of which calls are only a part.
  static constexpr double kStepGain = 0.01;
  enum class State { Watching, Ready, Trying, Settled, Left };
  enum class Aim { Search, Confirm };
  // One key's progress from its first call to its best setting.
  struct Course {
    State state = State::Watching;
    Aim aim = Aim::Search;
    std::optional<Search> search;
    Setting initial;                   // the cost model's choice
    std::optional<Setting> standing;   // none: the cost model's choice
    std::optional<Setting> replacing;  // becomes `standing` with the next proposal
    Setting candidate;
    Trial trial;
    uint32_t trials = 0;
    uint32_t voids = 0;  // consecutive trials for which some rank sent no times
    std::vector<double> watched;
    uint32_t called = 0, per_step = 0;  // calls since the last step; calls in each of the last
                                        // steps
    uint32_t alike = 0;                 // consecutive steps with equally many calls
    uint64_t bytes = 0;                 // of a block in its last call
    double us = 0, default_us = 0;      // of a call
    size_t drifted = 0;                 // consecutive windows
    size_t unwatched = 0;               // calls until it is watched again
    uint32_t searches = 0;
    size_t fresh = 0;  // windows to ignore after a search
    // The current trial.
    uint64_t round = 0;
    uint32_t index = 0, calls = 0, phases = 0, calls_since = 0;
    std::map<int, std::vector<double>> samples;
  };
  using Courses = std::map<Key, Course>;
  struct Open {
    Proposal proposal;
    std::set<int> yes;
  };
  void begin(Course& course, const SpaceMaker& make_space);
  [[nodiscard]] std::vector<Courses::value_type*> in_turn();
  [[nodiscard]] double risked_us(const Course& course) const;
  [[nodiscard]] bool is_known(const Course& course) const;
  [[nodiscard]] uint32_t phase_of(const Course& course) const;
  [[nodiscard]] double gain() const { return options_.by_steps ? kStepGain : Search::kGain; }
  void add_changes(const Key& key, Course& course, Proposal& proposal);
  Verdict close(bool commit);
  void start_trials();
  void conclude(Course& course);
  void choose_next(Course& course);
  void settle(Course& course);
  void abandon(Course& course);
  void look_for_drift(Course& course);
  void calibrate(Course& course, double now_us);

  ConductorOptions options_;
  Courses courses_;
  std::optional<Open> open_;
  std::map<uint64_t, bool> verdicts_;  // of the last few rounds
  uint64_t rounds_ = 0, cancelled_ = 0, n_finished_ = 0;
  uint64_t margin_ = 2;  // calls between a proposal and its first call
  std::optional<TimePoint> started_;
  double spent_us_ = 0;
  std::optional<TimePoint> stepped_;
  std::vector<double> steps_us_;  // of the last few steps
};

}  // namespace hetccl::tune
