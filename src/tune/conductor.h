// Rank 0's part: which keys are searched, what is tried next, when a change is to hold, and what
// the search may cost.
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

/// What was learnt of one key.
struct Learnt {
  Key key;
  Setting setting;
  uint64_t bytes = 0;     ///< of a block, of the calls that were timed
  double us = 0;          ///< that a call takes, between clusters and inside, on its slowest rank
  double default_us = 0;  ///< with the setting that the cost model chose
  uint32_t trials = 0;
};

struct ConductorOptions {
  int n_ranks = 1;
  double budget = 0.02;  ///< of the time since the first call, that trials may lose
  size_t most_trials = Search::kMostTrials;  ///< of a key
  /// What is made short: each call, or the program's steps (`step`), of which calls are a part.
  bool by_steps = false;
  /// Timing a call costs: of settled keys some calls are watched.
  bool timing_costs = false;
};

/// Not thread-safe. Makes no decision that other ranks do not hear of, so it may use its own clock.
class Conductor {
 public:
  explicit Conductor(ConductorOptions options) : options_(options) {}

  /// The settings among which a key is searched. Called once for each key.
  using SpaceMaker = std::function<Space()>;
  /// Learnt in an earlier job: the key is searched no more, unless its time has changed since.
  /// `told`: all ranks know it; else it is proposed.
  void know(const Learnt& learnt, bool told = true);
  /// Searches that key no more.
  void leave(const Key& key);
  /// Before a call of that key, whose blocks have `bytes`; perhaps there is something to propose.
  std::optional<Proposal> propose(const Key& key, uint64_t bytes, uint64_t sequence, TimePoint now,
                                  const SpaceMaker& make_space);
  /// The program has finished a step. A key that every step calls equally often is searched, one at
  /// a time.
  void step(TimePoint now);
  /// The verdict, once all have voted or one has said no.
  std::optional<Verdict> count(int rank, const Vote& vote);
  /// The verdict for a rank in doubt: cancels the round if it is still open.
  Verdict resolve(uint64_t round);
  /// Of a trial, from every rank.
  void add(int rank, const Samples& samples);
  /// Whether `watch` wants the time of the next call of that key. Called once for each call.
  [[nodiscard]] bool wants_time(const Key& key);
  /// How long a call of that key, outside trials, took on this rank.
  void watch(const Key& key, double us);

  /// Of keys whose search is over.
  [[nodiscard]] std::vector<Learnt> learnt() const;
  /// Grows with what there is to keep.
  [[nodiscard]] uint64_t n_finished() const { return n_finished_; }
  /// {keys: [{key, state, setting, us, default_us, trials, tried: [{setting, ratio}]}], rounds,
  ///  cancelled, lost_us}
  [[nodiscard]] Json describe() const;

 private:
  // Of a step, of which calls are a part.
  static constexpr double kStepGain = 0.01;
  enum class State { Watching, Ready, Trying, Settled, Left };
  enum class Aim { Search, Confirm };
  // One key's way from its first call to its best setting.
  struct Course {
    State state = State::Watching;
    Aim aim = Aim::Search;
    std::optional<Search> search;
    Setting initial;                   // what the cost model chose
    std::optional<Setting> standing;   // none: what the cost model chooses
    std::optional<Setting> replacing;  // is to stand from the next proposal on
    Setting candidate;
    Trial trial;
    uint32_t trials = 0;
    uint32_t voids = 0;  // trials in a row of which some rank told no times
    std::vector<double> watched;
    uint32_t called = 0, per_step = 0;  // calls since the last step; in each of the last steps
    uint32_t alike = 0;                 // steps in a row with as many calls
    uint64_t bytes = 0;                 // of a block of its last call
    double us = 0, default_us = 0;      // of a call
    size_t drifted = 0;                 // windows in a row
    size_t unwatched = 0;               // calls until it is watched again
    uint32_t searches = 0;
    size_t fresh = 0;  // windows until what is watched counts, after a search
    // The trial under way.
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
  std::map<uint64_t, bool> verdicts_;  // the last few rounds
  uint64_t rounds_ = 0, cancelled_ = 0, n_finished_ = 0;
  uint64_t margin_ = 2;  // calls between a proposal and its first call
  std::optional<TimePoint> started_;
  double spent_us_ = 0;
  std::optional<TimePoint> stepped_;
  std::vector<double> steps_us_;  // the last few
};

}  // namespace hetccl::tune
