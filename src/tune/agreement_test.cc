// All ranks use the same setting for the same call, even if notes between them get lost.
#include "tune/agreement.h"

#include <doctest/doctest.h>

#include <deque>
#include <map>
#include <queue>
#include <random>

#include "fake/sample.h"

namespace hetccl::tune {
namespace {

const Key kKeys[] = {{Collective::AllReduce, 12, 4, -1}, {Collective::AllGather, 20, 0, -1}};
constexpr int kLeader = Agreement::kLeader;
constexpr uint64_t kJobs = 10'000;
#if defined(HETCCL_UNDER_ASAN)  // ASan finds errors in few jobs
constexpr uint64_t kAgreementOneIn = 20;
#else
constexpr uint64_t kAgreementOneIn = 4;
#endif

// The conditions of a job, chosen by a seed.
struct Weather {
  int n_ranks = 2;
  int n_calls = 400;
  double call = 1;     // mean seconds between calls
  double delay = 1;    // mean seconds of a note
  double lost = 0;     // share of notes
  int deaf = -1;       // a rank that no proposal reaches
  bool loose = false;  // ranks run ahead of each other, as with streams
};

// Ranks that call, a control plane that delays and loses notes, and a clock.
class Job {
 public:
  Job(uint64_t seed, const Weather& weather) : random_(seed), weather_(weather) {
    for (int rank = 0; rank < weather.n_ranks; ++rank) {
      ranks_.emplace_back(
          rank, [=, this](Agreement::To to, const Note& note) { send_note(rank, to, note); });
    }
    ranks_[kLeader].agreement.lead({.n_ranks = weather.n_ranks, .budget = 100});
  }

  void run() {
    for (int rank = 0; rank < weather_.n_ranks; ++rank) at(uniform(), [=, this] { call(rank); });
    while (!events_.empty() && !finished()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      if (now_ > 1e6) FAIL("a rank waits for ever");
      event.action();
    }
    REQUIRE(finished());
  }

  uint64_t changed = 0;  // calls with another setting than the default
  uint64_t doubts = 0;   // calls that waited for a verdict
  [[nodiscard]] const Conductor& conductor() const { return ranks_[kLeader].agreement.conductor(); }

 private:
  struct Event {
    double time = 0;
    uint64_t number = 0;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::tie(other.time, other.number) < std::tie(time, number);
    }
  };
  struct Rank {
    Rank(int rank, Agreement::Tell tell) : agreement(rank, std::move(tell)) {}
    Agreement agreement;
    uint64_t called = 0;
    bool doubting = false;
    double slowness = 1;
    std::map<std::pair<uint64_t, uint32_t>, std::vector<double>> samples;
  };

  double uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  void at(double delay, std::function<void()> action) {
    events_.push({now_ + delay, count_++, std::move(action)});
  }
  [[nodiscard]] bool finished() const {
    for (const Rank& rank : ranks_)
      if (rank.called < static_cast<uint64_t>(weather_.n_calls)) return false;
    return true;
  }
  [[nodiscard]] static const Key& key_of(uint64_t sequence) {
    return kKeys[sequence % 7 < 4 ? 0 : 1];
  }

  // A call waits until all ranks have made the previous one, unless they are loosely coupled.
  void call(int who) {
    Rank& rank = ranks_[static_cast<size_t>(who)];
    if (rank.called >= static_cast<uint64_t>(weather_.n_calls)) return;
    const uint64_t ahead = weather_.loose ? 30 : 0;
    for (const Rank& other : ranks_) {
      if (other.called + ahead < rank.called)
        return at(weather_.call / 4, [=, this] { call(who); });
    }
    const Key& key = key_of(rank.called);
    if (who == kLeader && !rank.doubting) {
      const auto now = TimePoint(std::chrono::microseconds(static_cast<int64_t>(now_ * 1e6)));
      rank.agreement.propose(key, 4096, rank.called, now, make_space);
    }
    const auto use = rank.agreement.ledger().use(key, rank.called);
    if (!use) return doubt(who);
    rank.doubting = false;
    check(rank.called, *use);
    measure(who, key, *use);
    ++rank.called;
    at(weather_.call * (0.5 + uniform()), [=, this] { call(who); });
  }

  void doubt(int who) {
    Rank& rank = ranks_[static_cast<size_t>(who)];
    doubts += rank.doubting ? 0 : 1;
    rank.doubting = true;
    rank.agreement.resolve_open_round();
    at(weather_.delay, [=, this] { call(who); });
  }

  void check(uint64_t sequence, const Ledger::Use& use) {
    if (uses_.size() <= sequence) {
      uses_.push_back({use.setting, use.round});
      changed += use.round > 0 ? 1 : 0;
    }
    if (uses_[sequence].first != use.setting || uses_[sequence].second != use.round)
      FAIL("ranks use different settings for call ", sequence);
  }

  void measure(int who, const Key& key, const Ledger::Use& use) {
    const double slice = use.setting ? static_cast<double>(use.setting->choice.slice_bytes) : 8192;
    const double us = 100 * (1 + std::abs(std::log2(slice / 65'536))) * (0.9 + 0.2 * uniform());
    Rank& rank = ranks_[static_cast<size_t>(who)];
    if (who == kLeader && !use.trial) rank.agreement.conductor().watch(key, us);
    if (!use.trial) return;
    auto& list = rank.samples[{use.trial->round, use.trial->change}];
    if (use.trial->ends_phase) list.push_back(us);
    if (list.size() < use.trial->phases) return;
    rank.agreement.add({use.trial->round, use.trial->change, list});
  }

  // A note to all ranks reaches all or none.
  void send_note(int from, Agreement::To to, const Note& note) {
    if (to == Agreement::To::Leader) return send_note(from, kLeader, note);
    const bool all = to == Agreement::To::All;
    if (all && uniform() < weather_.lost) return;
    for (int rank = 0; rank < weather_.n_ranks; ++rank) {
      if (all) deliver(from, rank, note);
      if (!all && rank != from) send_note(from, rank, note);
    }
  }
  void send_note(int from, int to, const Note& note) {
    const bool deaf = to == weather_.deaf && std::holds_alternative<Proposal>(note);
    if (from == to || (!deaf && uniform() >= weather_.lost)) deliver(from, to, note);
  }
  void deliver(int from, int to, const Note& note) {
    double& last = last_arrival_[{from, to}];  // notes between two ranks stay in order
    const double delay = weather_.delay * -std::log(1 - uniform());
    last = std::max(last, now_ + delay);
    at(last - now_, [=, this] { receive_note(from, to, note); });
  }

  void receive_note(int from, int to, const Note& note) {
    Agreement& agreement = ranks_[static_cast<size_t>(to)].agreement;
    // A new proposal shows that the verdict on the open round was lost, so ask for it.
    if (std::holds_alternative<Proposal>(note) && agreement.ledger().open_round())
      agreement.resolve_open_round();
    agreement.receive_note(from, note);
  }

  static Space make_space() {
    Axis slices{Parameter::SliceBytes, {}};
    for (uint64_t slice = 1024; slice <= uint64_t{1} << 20U; slice *= 2)
      slices.values.push_back(slice);
    return {{{"exchange", {.slice_bytes = 8192, .depth = 3}, {}}, {slices}}};
  }

  std::mt19937_64 random_;
  const Weather weather_;
  std::deque<Rank> ranks_;
  std::priority_queue<Event> events_;
  std::map<std::pair<int, int>, double> last_arrival_;
  std::vector<std::pair<std::optional<Setting>, uint64_t>> uses_;  // by call
  double now_ = 0;
  uint64_t count_ = 0;
};

TEST_CASE("agreement: ten thousand jobs with delays and losses, one setting for each call") {
  uint64_t changed = 0, doubts = 0, rounds = 0, cancelled = 0;
  const std::vector<uint64_t> seeds = fake::sampled_seeds(kJobs, kAgreementOneIn);
  for (const uint64_t seed : seeds) {
    std::mt19937_64 random(seed);
    Weather weather;
    weather.n_ranks = 1 + static_cast<int>(random() % 6);
    weather.n_calls = 40 + static_cast<int>(random() % 120);
    weather.delay = std::pow(10.0, static_cast<double>(random() % 50) / 10 - 3);  // 0.001 to 100
    weather.lost = random() % 3 == 0 ? static_cast<double>(random() % 40) / 100 : 0;
    weather.deaf = random() % 10 == 0 ? static_cast<int>(random() % 6) : -1;
    weather.loose = random() % 2 == 0;
    CAPTURE(seed);
    Job job(seed, weather);
    job.run();
    changed += job.changed;
    doubts += job.doubts;
    const Json described = job.conductor().describe();
    rounds += static_cast<uint64_t>(*described["rounds"].integer(0, INT32_MAX));
    cancelled += static_cast<uint64_t>(*described["cancelled"].integer(0, INT32_MAX));
  }
  MESSAGE(rounds, " rounds, of which ", cancelled, " were cancelled; ", changed,
          " calls with a changed setting; ", doubts, " waited for a verdict");
  CHECK(changed > 10 * seeds.size());
  CHECK(doubts > seeds.size() / 10);
  CHECK(cancelled > seeds.size() / 10);
}

TEST_CASE("agreement: a rank that proposals never reach leaves all with the old setting") {
  Weather weather{.n_ranks = 3, .n_calls = 300, .delay = 0.1};
  weather.deaf = 2;
  Job job(1, weather);
  job.run();
  CHECK(job.changed == 0);
}

TEST_CASE("agreement: over a quick control plane the best is found, and stays") {
  Weather weather{.n_ranks = 3, .n_calls = 600, .delay = 0.01};
  Job job(5, weather);
  job.run();
  const auto learnt = job.conductor().learnt();
  REQUIRE(learnt.size() == 2);
  for (const Learnt& one : learnt) {
    CHECK(one.setting.choice.slice_bytes == 65'536);
    CHECK(one.us < one.default_us * 0.5);
  }
}

}  // namespace
}  // namespace hetccl::tune
