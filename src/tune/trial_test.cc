#include "tune/trial.h"

#include <doctest/doctest.h>

#include <random>

#include "tune/note.h"

namespace hetccl::tune {
namespace {

// Phases of a machine whose times vary by `noise`, with an occasional disturbance.
std::vector<double> phases(std::mt19937& random, uint32_t n, double ratio, double noise) {
  std::normal_distribution<double> normal(1, noise);
  std::vector<double> us;
  for (uint32_t i = 0; i < n; ++i) {
    const double hit = random() % 20 == 0 ? 5 : 1;
    us.push_back(100 * std::max(0.2, normal(random)) * (tries_candidate(i) ? ratio : 1) * hit);
  }
  return us;
}

Trial::Finding judge(std::mt19937& random, double ratio, double noise) {
  Trial trial;
  static_cast<void>(trial.add(phases(random, Trial::kFirstPhases, ratio, noise)));
  while (trial.finding(0.02) == Trial::Finding::Unclear)
    static_cast<void>(trial.add(phases(random, Trial::kMorePhases, ratio, noise)));
  return trial.finding(0.02);
}

TEST_CASE("trial: what is faster by much, or slower, is found; equals are rarely told apart") {
  std::mt19937 random(3);
  int faster = 0, slower = 0, equal = 0;
  constexpr int kTrials = 1000;
  for (int i = 0; i < kTrials; ++i) {
    faster += judge(random, 0.8, 0.1) == Trial::Finding::Faster ? 1 : 0;
    slower += judge(random, 1.2, 0.1) == Trial::Finding::Faster ? 1 : 0;
    equal += judge(random, 1.0, 0.1) == Trial::Finding::Faster ? 1 : 0;
  }
  MESSAGE(faster, " of ", kTrials, " faster ones found; slower ones taken: ", slower,
          ", equal ones: ", equal);
  CHECK(faster > 0.9 * kTrials);
  CHECK(slower < 0.01 * kTrials);
  CHECK(equal < 0.3 * kTrials);
}

TEST_CASE("trial: a candidate that is far slower ends with the first phases") {
  Trial trial;
  const std::vector<double> us = {100, 900, 250, 100, 100, 250};
  CHECK(trial.add(us) == doctest::Approx(1100));
  CHECK(trial.finding(0.02) == Trial::Finding::NotFaster);
  CHECK(trial.ratio() == doctest::Approx(2.5));
  CHECK(trial.standing_us() == doctest::Approx(100));
}

TEST_CASE("trial: what a phase leaves to the next falls on both") {
  Trial trial;
  std::vector<double> us;
  for (uint32_t i = 0; i < Trial::kFirstPhases + Trial::kMorePhases; ++i)
    us.push_back(i > 0 && tries_candidate(i) != tries_candidate(i - 1) ? 130 : 100);
  static_cast<void>(trial.add(us));
  CHECK(trial.ratio() == doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("trial: the first pair warms up and decides nothing") {
  Trial trial;
  CHECK(trial.empty());
  static_cast<void>(trial.add(std::vector<double>{100, 1e6}));
  CHECK(trial.empty());
  CHECK(trial.finding(0.02) == Trial::Finding::Unclear);
}

}  // namespace
}  // namespace hetccl::tune
