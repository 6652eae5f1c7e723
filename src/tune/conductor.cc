#include "tune/conductor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tune/averages.h"

namespace hetccl::tune {
namespace {

constexpr size_t kWatched = 8;  // calls of a key before it is searched
constexpr uint32_t kAlike = 3;  // consecutive steps with equally many calls before a key is
                                // searched
// A call may leave bytes behind that delay the next, and ranks lead or lag each other. So a phase's
// first call does not count, and a few more make the ranks' lead negligible.
constexpr uint32_t kPhase = 4;
constexpr size_t kWindow = 16;  // calls whose mean is compared with the learnt time
// Slow trials leave links and buffers empty, so the first calls after them are faster than later
// ones.
constexpr size_t kFresh = 4;  // windows
constexpr size_t kUnwatched = 15 * kWindow;
constexpr double kShortUs = 200;  // shorter calls would be slowed down by timing each
constexpr double kDrift = 1.5;    // factor, slower or faster
constexpr size_t kWindows = 2;    // consecutive; doubled after each search
constexpr uint32_t kMostBackOff = 4;
constexpr uint64_t kMostMargin = 256;
constexpr uint32_t kMostVoids = 3;
constexpr size_t kVerdictsKept = 64;

}  // namespace

void Conductor::add_learnt(const Learnt& learnt, bool told) {
  Course& course = courses_[learnt.key];
  course.state = State::Settled;
  (told ? course.standing : course.replacing) = learnt.setting;
  course.us = learnt.us;
  course.bytes = learnt.bytes;
  course.initial = learnt.setting;
  course.default_us = learnt.default_us;
  course.trials = learnt.trials;
}

void Conductor::leave(const Key& key) {
  courses_[key] = {};
  courses_[key].state = State::Left;
}

std::optional<Proposal> Conductor::propose(const Key& key, uint64_t bytes, uint64_t sequence,
                                           TimePoint now, const SpaceMaker& make_space) {
  if (!started_) started_ = now;
  // Data flows one way, so ranks run calls ahead of others, and one call's time means nothing.
  if (is_rooted(key.collective) && !options_.by_steps) return std::nullopt;
  Course& called = courses_[key];
  ++called.called;
  called.bytes = bytes;
  if (called.state == State::Watching && is_known(called)) begin(called, make_space);
  if (called.state == State::Trying && ++called.calls_since > 4 * called.calls + 64)
    abandon(called);
  if (open_) return std::nullopt;
  if (std::none_of(courses_.begin(), courses_.end(), [](const auto& one) {
        return one.second.state == State::Ready || one.second.replacing;
      }))
    return std::nullopt;
  const double elapsed_us = std::chrono::duration<double, std::micro>(now - *started_).count();
  double left_us = options_.budget * elapsed_us - spent_us_;
  for (const auto& [other, course] : courses_) {
    if (course.state != State::Trying) continue;
    if (options_.by_steps) return std::nullopt;  // another key's trial would change the steps, too
    left_us -= risked_us(course);
  }
  Proposal proposal{rounds_ + 1, sequence + margin_, {}};
  for (auto* one : in_turn()) {
    auto& [other, course] = *one;
    if (proposal.changes.size() + 2 > kMostChanges) break;
    const double risk_us = course.state == State::Ready ? risked_us(course) : 0;
    if (risk_us > left_us) continue;
    left_us -= risk_us;
    add_changes(other, course, proposal);
    if (options_.by_steps && !proposal.changes.empty()) break;
  }
  if (proposal.changes.empty()) return std::nullopt;
  ++rounds_;
  open_ = Open{proposal, {}};
  return proposal;
}

// Returns the keys in the order of bytes moved in a step: those with most to gain come first.
std::vector<Conductor::Courses::value_type*> Conductor::in_turn() {
  std::vector<Courses::value_type*> all;
  for (auto& one : courses_) all.push_back(&one);
  if (!options_.by_steps) return all;
  const auto moved = [](const Courses::value_type* one) {
    return std::ldexp(one->second.per_step, one->first.size_class);
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const auto* a, const auto* b) { return moved(a) > moved(b); });
  return all;
}

// Returns whether enough calls were seen, or, by steps, always equally many.
bool Conductor::is_known(const Course& course) const {
  if (!options_.by_steps) return course.watched.size() >= kWatched;
  return course.alike >= kAlike && course.per_step > 0 && !steps_us_.empty() &&
         course.per_step * Trial::kMorePhases <= kMostCalls;
}

void Conductor::step(TimePoint now) {
  if (stepped_) {
    if (steps_us_.size() >= kWatched) steps_us_.erase(steps_us_.begin());
    steps_us_.push_back(std::chrono::duration<double, std::micro>(now - *stepped_).count());
  }
  stepped_ = now;
  for (auto& [key, course] : courses_) {
    const uint32_t called = std::exchange(course.called, 0);
    course.alike = called == course.per_step ? course.alike + 1 : 0;
    course.per_step = called;
  }
}

void Conductor::begin(Course& course, const SpaceMaker& make_space) {
  Space space = make_space();
  course.us = median(options_.by_steps ? steps_us_ : course.watched);
  if (!space.empty()) course.initial = space.front().start;
  if (size_of(space) <= 1) {
    course.state = State::Settled;
    course.default_us = course.us;
    ++n_finished_;
    return;
  }
  const auto from = find_point(space, course.standing.value_or(course.initial));
  const Point start = from.value_or(start_of(space, 0));
  ++course.searches;
  course.search.emplace(std::move(space), start, options_.most_trials, gain());
  choose_next(course);
}

uint32_t Conductor::phase_of(const Course& course) const {
  return options_.by_steps ? course.per_step : kPhase;
}

// Returns the time that the trial's next calls may lose: first, all of it; later, by the ratio so
// far.
double Conductor::risked_us(const Course& course) const {
  const double phase_us = course.us * (options_.by_steps ? 1 : phase_of(course));
  if (course.trial.empty()) return Trial::kFirstPhases / 2.0 * phase_us;
  return Trial::kMorePhases / 2.0 * phase_us * std::max(0.05, course.trial.ratio() - 1);
}

void Conductor::add_changes(const Key& key, Course& course, Proposal& proposal) {
  if (course.replacing) proposal.changes.push_back({key, *course.replacing, 0});
  if (course.state != State::Ready) return;
  course.round = proposal.round;
  course.index = static_cast<uint32_t>(proposal.changes.size());
  course.phases = course.trial.empty() ? Trial::kFirstPhases : Trial::kMorePhases;
  const uint32_t phase = phase_of(course);
  course.calls = course.phases * phase;
  proposal.changes.push_back({key, course.candidate, course.calls, phase, !options_.by_steps});
}

std::optional<Verdict> Conductor::count(int rank, const Vote& vote) {
  if (!open_ || vote.round != open_->proposal.round) return std::nullopt;
  if (!vote.yes) return close(false);
  open_->yes.insert(rank);
  if (open_->yes.size() < static_cast<size_t>(options_.n_ranks)) return std::nullopt;
  return close(true);
}

Verdict Conductor::resolve(uint64_t round) {
  if (open_ && round == open_->proposal.round) return close(false);
  const auto found = verdicts_.find(round);
  return {round, found != verdicts_.end() && found->second};
}

Verdict Conductor::close(bool commit) {
  const Verdict verdict{open_->proposal.round, commit};
  verdicts_[verdict.round] = commit;
  if (verdicts_.size() > kVerdictsKept) verdicts_.erase(verdicts_.begin());
  if (commit) {
    start_trials();
    margin_ = std::max<uint64_t>(margin_ - 1, 2);
  } else {
    ++cancelled_;
    margin_ = std::min(margin_ * 2, kMostMargin);
  }
  open_.reset();
  return verdict;
}

void Conductor::start_trials() {
  for (const Change& change : open_->proposal.changes) {
    Course& course = courses_[change.key];
    if (change.calls == 0) {
      course.standing = change.setting;
      course.replacing.reset();
    } else if (course.state == State::Ready) {
      course.state = State::Trying;
      course.samples.clear();
      course.calls_since = 0;
    }
  }
}

void Conductor::add(int rank, const Samples& samples) {
  for (auto& [key, course] : courses_) {
    if (course.state != State::Trying || course.round != samples.round ||
        course.index != samples.change || course.phases != samples.us.size())
      continue;
    course.samples[rank] = samples.us;
    if (course.samples.size() == static_cast<size_t>(options_.n_ranks)) conclude(course);
    return;
  }
}

// A phase is over when its slowest rank is.
void Conductor::conclude(Course& course) {
  std::vector<double> slowest(course.phases, 0);
  for (const auto& [rank, us] : course.samples)
    for (size_t i = 0; i < us.size(); ++i) slowest[i] = std::max(slowest[i], us[i]);
  const double lost_us =
      course.trial.add(slowest) * (options_.by_steps ? 1 : course.calls / course.phases);
  spent_us_ = std::max(0.0, spent_us_ + lost_us);
  course.voids = 0;
  course.us = course.trial.standing_us();
  course.state = State::Ready;
  const bool confirms = course.aim == Aim::Confirm;
  const auto finding = course.trial.finding(confirms ? -gain() : gain());
  if (finding == Trial::Finding::Unclear) return;
  ++course.trials;
  const bool faster = finding == Trial::Finding::Faster;
  const double ratio = course.trial.ratio();
  if (faster) course.replacing = course.candidate;
  if (confirms) {
    course.default_us = course.us * ratio;
    if (faster) course.us = course.default_us;
    return settle(course);
  }
  course.search->score(faster ? ratio : std::max(ratio, 1 - gain() / 2));
  if (faster) course.us *= ratio;
  choose_next(course);
}

void Conductor::choose_next(Course& course) {
  course.trial = {};
  course.state = State::Ready;
  if (const auto point = course.search->next()) {
    course.aim = Aim::Search;
    course.candidate = setting_at(course.search->space(), *point);
    return;
  }
  // Noise may win one of many comparisons, so the winner has to win once more, by as much.
  const Setting best = setting_at(course.search->space(), course.search->best());
  if (best == course.initial) {
    course.default_us = course.us;
    return settle(course);
  }
  course.aim = Aim::Confirm;
  course.candidate = course.initial;
}

void Conductor::settle(Course& course) {
  course.state = State::Settled;
  course.trial = {};
  course.watched.clear();
  course.drifted = 0;
  course.fresh = kFresh;
  ++n_finished_;
}

// Ends the trial of a key for which some rank sends no times.
void Conductor::abandon(Course& course) {
  if (++course.voids >= kMostVoids) return settle(course);
  course.state = State::Ready;
}

bool Conductor::wants_time(const Key& key) {
  const auto found = courses_.find(key);
  if (options_.by_steps || found == courses_.end()) return false;
  Course& course = found->second;
  if (course.state == State::Watching) return course.watched.size() < kWatched;
  if (course.state != State::Settled || course.replacing) return false;
  if (course.unwatched == 0) return true;
  --course.unwatched;
  return false;
}

void Conductor::watch(const Key& key, double us) {
  const auto found = courses_.find(key);
  if (found == courses_.end()) return;
  Course& course = found->second;
  if (course.state == State::Watching && course.watched.size() < kWatched)
    course.watched.push_back(us);
  if (course.state != State::Settled || course.replacing || options_.by_steps) return;
  course.watched.push_back(us);
  if (course.watched.size() >= kWindow) look_for_drift(course);
}

void Conductor::look_for_drift(Course& course) {
  const double now_us = trimmed_mean(course.watched);
  course.watched.clear();
  if (course.fresh > 0) {
    if (--course.fresh == 0) calibrate(course, now_us);
    return;
  }
  const double ratio = now_us / course.us;
  if (course.us > 0 && ratio < kDrift && ratio > 1 / kDrift) {
    course.drifted = 0;
    if (options_.timing_costs || course.us < kShortUs) course.unwatched = kUnwatched;
  } else if (++course.drifted >= kWindows << (std::clamp(course.searches, 1U, kMostBackOff) - 1)) {
    course.drifted = 0;
    course.us = now_us;
    course.voids = 0;
    course.state = State::Watching;
  }
}

// Trials timed the slowest rank, after a call of the same kind. Watching times this rank alone,
// after any call, so take a new reference.
void Conductor::calibrate(Course& course, double now_us) {
  if (course.us > 0) course.default_us *= now_us / course.us;
  course.us = now_us;
  ++n_finished_;
}

std::vector<Learnt> Conductor::learnt() const {
  std::vector<Learnt> all;
  for (const auto& [key, course] : courses_) {
    const bool known = !course.initial.algorithm.empty() && course.default_us > 0;
    if (course.state != State::Settled || !known) continue;
    all.push_back({key, course.replacing.value_or(course.standing.value_or(course.initial)),
                   course.bytes, course.us, course.default_us, course.trials});
  }
  return all;
}

Conductor::Progress Conductor::progress() const {
  Progress found;
  for (const auto& [key, course] : courses_) {
    if (course.state == State::Left) continue;
    ++(course.state == State::Settled ? found.settled : found.unsettled);
  }
  return found;
}

Json Conductor::describe() const {
  static constexpr const char* kStates[] = {"watching", "searching", "searching", "settled",
                                            "left"};
  std::vector<Json> keys;
  for (const auto& [key, course] : courses_) {
    Json one{{"key", to_json(key)},
             {"state", kStates[static_cast<size_t>(course.state)]},
             {"trials", course.trials},
             {"us", course.us},
             {"default_us", course.default_us}};
    if (course.standing) one.set("setting", to_json(*course.standing));
    std::vector<Json> tried;
    if (course.search) {
      for (const auto& [point, ratio] : course.search->tried())
        tried.push_back(
            {{"setting", to_json(setting_at(course.search->space(), point))}, {"ratio", ratio}});
    }
    one.set("tried", std::move(tried));
    keys.push_back(std::move(one));
  }
  return {{"keys", std::move(keys)},
          {"rounds", rounds_},
          {"cancelled", cancelled_},
          {"lost_us", spent_us_}};
}

}  // namespace hetccl::tune
