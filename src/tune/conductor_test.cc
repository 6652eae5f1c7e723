#include "tune/conductor.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "tune/ledger.h"

namespace hetccl::tune {
namespace {

using std::chrono::microseconds;

const Key kKey{Collective::AllReduce, 20, 4, -1};

Space make_space() {
  Axis slices{Parameter::SliceBytes, {}};
  for (uint64_t slice = 1024; slice <= uint64_t{1} << 20U; slice *= 2)
    slices.values.push_back(slice);
  return {{{"exchange", {.slice_bytes = 8192, .depth = 3}, {}}, {slices}}};
}

// One rank whose calls take longer the further their slice size is from the best.
class Loop {
 public:
  explicit Loop(ConductorOptions options, uint64_t seed = 1) : conductor(options), random_(seed) {}

  /// Makes one call. Returns its time in microseconds.
  double call() {
    const TimePoint now = TimePoint() + microseconds(static_cast<int64_t>(now_us));
    if (const auto proposal = conductor.propose(kKey, 1 << 20, sequence_, now, make_space)) {
      if (const auto verdict = conductor.count(0, ledger_.vote(*proposal)))
        ledger_.settle(*verdict);
    }
    const auto use = ledger_.use(kKey, sequence_++);
    if (!use) FAIL("in doubt alone");
    if (!use->trial) standing = use->setting;
    const double slice =
        use->setting ? static_cast<double>(use->setting->choice.slice_bytes) : 8192;
    const double us = speed * (1 + 0.3 * std::abs(std::log2(slice / best))) *
                      std::uniform_real_distribution<double>(0.97, 1.03)(random_);
    now_us += us + apart_us;
    tell(*use, us);
    return us;
  }
  void calls(int n) {
    for (int i = 0; i < n; ++i) call();
  }
  void call_until_settled() {
    for (int i = 0; i < 2000 && (i < 20 || !settled()); ++i) call();
    REQUIRE(settled());
  }
  [[nodiscard]] bool settled() const {
    return *conductor.describe()["keys"][0]["state"].text() == "settled";
  }

  Conductor conductor;
  std::optional<Setting> standing;
  double now_us = 0, apart_us = 0, speed = 100, best = 262'144;

 private:
  void tell(const Ledger::Use& use, double us) {
    if (!use.trial) return conductor.watch(kKey, us);
    const uint32_t length = use.trial->calls / use.trial->phases;
    if ((use.trial->call + 1) % length == 0) times_.push_back(us);
    if (use.trial->call + 1 < use.trial->calls) return;
    conductor.add(0, {use.trial->round, use.trial->change, std::exchange(times_, {})});
  }

  std::mt19937_64 random_;
  Ledger ledger_;
  std::vector<double> times_;
  uint64_t sequence_ = 0;
};

TEST_CASE("conductor: the best is found, and what was learnt says so") {
  Loop loop({.budget = 100});
  loop.call_until_settled();
  const auto learnt = loop.conductor.learnt();
  REQUIRE(learnt.size() == 1);
  CHECK(learnt[0].setting.choice.slice_bytes == 262'144);
  CHECK(learnt[0].us == doctest::Approx(100).epsilon(0.1));
  CHECK(learnt[0].default_us == doctest::Approx(250).epsilon(0.1));
  CHECK(learnt[0].trials <= Search::kMostTrials);
}

TEST_CASE("conductor: trials lose no more than the budget") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Loop loop({.budget = 0.02}, seed);
    loop.best = seed % 2 == 0 ? 8192 : 262'144;  // the default may be the best already
    loop.apart_us = 1000;                        // the rest of a step beside the call
    const double by_default = 100 * (1 + 0.3 * std::abs(std::log2(8192 / loop.best)));
    double lost = 0;
    for (int i = 0; i < 200; ++i) lost += loop.call() - by_default;
    CHECK(lost < 0.02 * loop.now_us);
  }
}

TEST_CASE("conductor: when calls take another time than was learnt, the key is searched again") {
  Loop loop({.budget = 100});
  loop.call_until_settled();
  loop.calls(500);
  CHECK(loop.settled());  // nothing has changed
  loop.speed = 300;
  loop.best = 16'384;
  int calls = 0;
  for (; calls < 200 && loop.settled(); ++calls) loop.call();
  CHECK(calls < 64);
  for (; calls < 2000 && !loop.settled(); ++calls) loop.call();
  REQUIRE(loop.settled());
  loop.calls(20);
  CHECK(loop.standing->choice.slice_bytes == 16'384);
  MESSAGE(calls, " calls until the new best was found");
}

TEST_CASE("conductor: what an earlier job has learnt stands, and is searched again only on drift") {
  Loop loop({.budget = 100});
  const Setting known{"exchange", {.slice_bytes = 262'144, .depth = 3}, {}};
  loop.conductor.add_learnt({kKey, known, 1 << 20, 250, 400, 12});
  loop.calls(200);
  CHECK(loop.settled());
  CHECK(loop.conductor.describe()["rounds"].integer(0, 100) == 0);
}

TEST_CASE("conductor: what an earlier job has learnt is proposed where ranks were not told") {
  const Learnt learnt{kKey, {"ring", {.slice_bytes = 4096, .depth = 3}, {}}, 1 << 20, 80, 100, 9};
  for (const bool told : {true, false}) {
    CAPTURE(told);
    Conductor conductor({.n_ranks = 2, .by_steps = true});
    conductor.add_learnt(learnt, told);
    auto proposal = conductor.propose(kKey, 1 << 20, 0, TimePoint(), make_space);
    CHECK(proposal.has_value() == !told);
    if (!proposal) continue;
    REQUIRE(proposal->changes.size() == 1);
    CHECK(proposal->changes[0] == Change{kKey, learnt.setting});
    CHECK_FALSE(conductor.count(0, {proposal->round, true}));
    CHECK_FALSE(conductor.count(1, {proposal->round, false})->commit);
    proposal = conductor.propose(kKey, 1 << 20, 10, TimePoint(), make_space);  // proposes again
    REQUIRE(proposal);
    CHECK_FALSE(conductor.count(0, {proposal->round, true}));
    CHECK(conductor.count(1, {proposal->round, true})->commit);
    CHECK_FALSE(conductor.propose(kKey, 1 << 20, 20, TimePoint(), make_space));
    CHECK(conductor.learnt().front().setting == learnt.setting);
  }
}

TEST_CASE("conductor: a rank that tells no times ends the search of that key, not the job") {
  Conductor conductor({.n_ranks = 2, .budget = 100});
  for (uint64_t sequence = 0; sequence < 5000; ++sequence) {
    const TimePoint now = TimePoint() + microseconds(1000 * sequence);
    const auto proposal = conductor.propose(kKey, 1 << 20, sequence, now, make_space);
    conductor.watch(kKey, 100);
    if (!proposal) continue;
    CHECK(!conductor.count(0, {proposal->round, true}));
    CHECK(conductor.count(1, {proposal->round, true})->commit);
  }
  CHECK(*conductor.describe()["keys"][0]["state"].text() == "settled");
  CHECK(conductor.describe()["rounds"].integer(0, 1000) == 3);
}

TEST_CASE("conductor: steps are made short, where a step calls a key equally often") {
  for (const bool even : {true, false}) {
    Conductor conductor({.budget = 100, .by_steps = true});
    uint64_t sequence = 0;
    int proposals = 0;
    for (int step = 0; step < 30; ++step) {
      const int calls = even ? 3 : 2 + step % 2;
      for (int i = 0; i < calls; ++i, ++sequence) {
        const TimePoint now = TimePoint() + microseconds(1000 * step);
        const auto proposal = conductor.propose(kKey, 1 << 20, sequence, now, make_space);
        if (!proposal) continue;
        ++proposals;
        CHECK(proposal->changes.back().phase == 3);
        CHECK(proposal->changes.back().calls == 3 * Trial::kFirstPhases);
        CHECK(conductor.count(0, {proposal->round, true})->commit);
      }
      conductor.step(TimePoint() + microseconds(1000 * (step + 1)));
    }
    CHECK((proposals > 0) == even);
  }
}

TEST_CASE("conductor: where data flows one way, a call's time says nothing, and a step's does") {
  const Key key{Collective::Broadcast, 20, 0, 0};
  for (const bool by_steps : {false, true}) {
    Conductor conductor({.budget = 100, .by_steps = by_steps});
    int proposals = 0;
    for (uint64_t step = 0; step < 30; ++step) {
      const TimePoint now = TimePoint() + microseconds(1000 * step);
      if (conductor.propose(key, 1 << 20, step, now, make_space)) ++proposals;
      conductor.watch(key, 100);
      conductor.step(now);
    }
    CHECK((proposals > 0) == by_steps);
  }
}

}  // namespace
}  // namespace hetccl::tune
