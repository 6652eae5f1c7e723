// Programs whose calls take different times at different places of a step.
#include <doctest/doctest.h>

#include <functional>
#include <random>

#include "tune/conductor.h"
#include "tune/ledger.h"

namespace hetccl::tune {
namespace {

const Key kPlacesKey{Collective::ReduceScatter, 22, 4, -1};
constexpr uint64_t kDefault = 8192, kBest = 65'536;

Space make_places_space() {
  Axis slices{Parameter::SliceBytes, {}};
  for (uint64_t slice = 4096; slice <= uint64_t{1} << 18U; slice *= 2)
    slices.values.push_back(slice);
  return {{{"exchange", {.slice_bytes = kDefault, .depth = 3}, {}}, {slices}}};
}

// One rank, whose calls take times that depend on their place in the step and on the slice size.
class Program {
 public:
  using Time = std::function<double(uint64_t place, uint64_t slice)>;
  Program(uint64_t calls, Time time, uint64_t seed = 1)
      : calls_(calls), time_(std::move(time)), random_(seed) {}

  void step() {
    for (uint64_t place = 0; place < calls_; ++place) call(place);
  }
  [[nodiscard]] const Conductor& conductor() const { return conductor_; }

 private:
  void call(uint64_t place) {
    const TimePoint now(std::chrono::microseconds(static_cast<int64_t>(now_us_)));
    if (const auto proposal =
            conductor_.propose(kPlacesKey, 1 << 22, sequence_, now, make_places_space)) {
      if (const auto verdict = conductor_.count(0, ledger_.vote(*proposal)))
        ledger_.settle(*verdict);
    }
    const auto use = ledger_.use(kPlacesKey, sequence_++);
    REQUIRE(use);
    const uint64_t slice = use->setting ? use->setting->choice.slice_bytes : kDefault;
    const double us = time_(place, slice) * std::normal_distribution<double>(1, 0.01)(random_);
    now_us_ += us;
    if (!use->trial) return conductor_.watch(kPlacesKey, us);
    if (!use->trial->ends_phase) return;
    samples_.push_back(us);
    if (use->trial->phase + 1 < use->trial->phases) return;
    conductor_.add(0, {use->trial->round, use->trial->change, std::move(samples_)});
    samples_.clear();
  }

  const uint64_t calls_;
  const Time time_;
  Conductor conductor_{{.n_ranks = 1, .budget = 100}};
  Ledger ledger_;
  std::mt19937_64 random_;
  std::vector<double> samples_;
  uint64_t sequence_ = 0;
  double now_us_ = 0;
};

double slower(uint64_t slice) {
  return 1 + 0.1 * std::abs(std::log2(static_cast<double>(slice) / kBest));
}

TEST_CASE("conductor: places that take different times seldom mislead, whatever a step calls") {
  for (const uint64_t calls : {1, 2, 4, 5, 7, 8, 12, 15, 16, 24}) {
    CAPTURE(calls);
    const auto time = [](uint64_t place, uint64_t slice) {
      return (place % 4 < 2 ? 100 : 110) * slower(slice);
    };
    int found = 0;
    for (uint64_t seed = 0; seed < 10; ++seed) {
      Program program(calls, time, seed);
      for (uint64_t made = 0; made < 2000; made += calls) program.step();
      const auto learnt = program.conductor().learnt();
      REQUIRE(learnt.size() == 1);
      found += slower(learnt[0].setting.choice.slice_bytes) <= 1.1 ? 1 : 0;
    }
    CHECK(found >= 8);
  }
}

TEST_CASE("conductor: what is watched differs from what trials time, and is no drift") {
  // The first call of a step waits for computation.
  Program program(2, [](uint64_t place, uint64_t slice) {
    return (place == 0 ? 1000 : 0) + 100 * slower(slice);
  });
  for (int step = 0; step < 400; ++step) program.step();
  const auto settled = [&] {
    return *program.conductor().describe()["keys"].elements()->front()["state"].text();
  };
  REQUIRE(settled() == "settled");
  const uint64_t finished = program.conductor().n_finished();
  for (int step = 0; step < 2000; ++step) {
    program.step();
    CHECK(settled() == "settled");
  }
  CHECK(program.conductor().n_finished() == finished);
}

TEST_CASE("conductor: by steps, what moves most bytes in a step is searched first") {
  Conductor conductor({.n_ranks = 1, .budget = 100, .by_steps = true});
  const Key light{Collective::AllReduce, 20, 4, -1}, heavy{Collective::AllReduce, 25, 4, -1};
  std::vector<Key> tried;
  uint64_t sequence = 0;
  for (int step = 1; step < 20 && tried.size() < 3; ++step) {
    const TimePoint now(std::chrono::milliseconds(100 * step));
    for (int call = 0; call < 9; ++call) {
      const auto& key = call == 0 ? light : heavy;
      const auto proposal = conductor.propose(key, 1 << 20, sequence++, now, make_places_space);
      if (!proposal) continue;
      tried.push_back(proposal->changes.at(0).key);
      REQUIRE(conductor.count(0, {proposal->round, true}));
      const Change& change = proposal->changes[0];
      conductor.add(0, {proposal->round, 0, std::vector<double>(change.calls / change.phase, 1e5)});
    }
    conductor.step(now);
  }
  REQUIRE(tried.size() >= 3);
  CHECK(tried[0] == light);  // the other is not known when it is called
  CHECK(tried[1] == heavy);
  CHECK(tried[2] == heavy);
}

}  // namespace
}  // namespace hetccl::tune
