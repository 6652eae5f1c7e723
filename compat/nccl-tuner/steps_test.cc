#include "nccl-tuner/steps.h"

#include <doctest/doctest.h>

#include <random>

#include "nccl-tuner/meter.h"

namespace hetccl::nccl_tuner {
namespace {

using std::chrono::microseconds;

// Feeds `pattern` n times, with `each` between calls; returns the indices of the calls that begin
// steps.
std::vector<uint64_t> feed(Steps& steps, const std::vector<uint64_t>& pattern, size_t n,
                           microseconds each) {
  std::vector<uint64_t> begun;
  TimePoint now{};
  for (uint64_t i = 0; i < n * pattern.size(); ++i) {
    if (steps.begins(pattern[i % pattern.size()], now)) begun.push_back(i);
    now += each;
  }
  return begun;
}

TEST_CASE("steps: the period of a program's calls is found, whatever it is") {
  std::mt19937_64 random(3);
  for (const size_t period : {size_t{1}, size_t{2}, size_t{5}, size_t{60}, size_t{700}}) {
    CAPTURE(period);
    std::vector<uint64_t> pattern;
    for (size_t i = 0; i < period; ++i) pattern.push_back(random() % 3);
    pattern.back() = 9;
    Steps steps;
    const auto begun = feed(steps, pattern, 12 + 3000 / period, microseconds(100'000));
    CHECK(steps.period() == period);
    REQUIRE(begun.size() > 3);
    for (size_t i = 1; i < begun.size(); ++i) CHECK(begun[i] - begun[i - 1] == period);
  }
}

TEST_CASE("steps: short steps are taken together, but not more than is useful") {
  Steps quick;
  const auto many = feed(quick, {1}, 3000, microseconds(10));
  REQUIRE(many.size() > 3);
  CHECK(many[2] - many[1] == Steps::kMostTogether);
  Steps slow;
  const auto few = feed(slow, {1, 2}, 1000, microseconds(5'000));
  REQUIRE(few.size() > 3);
  CHECK(few[2] - few[1] == 2 * 6);  // 60 ms
}

TEST_CASE("steps: a program that never repeats itself has none; one that changes has others") {
  std::mt19937_64 random(4);
  Steps steps;
  for (int i = 0; i < 20'000; ++i) CHECK_FALSE(steps.begins(random(), TimePoint()));
  CHECK(steps.period() == 0);
  feed(steps, {1, 2, 3}, 1000, microseconds(100'000));
  CHECK(steps.period() == 3);
  feed(steps, {4, 5}, 1000, microseconds(100'000));
  CHECK(steps.period() == 2);
}

TEST_CASE("meter: a phase lasts until the first call of the next") {
  const tune::Key key{Collective::AllReduce, 20, 1, -1};
  Meter meter;
  const auto at = [](int ms) { return TimePoint(std::chrono::milliseconds(ms)); };
  const auto trial = [](uint32_t call) {
    return tune::Ledger::Use::Trial{7, 1, call, 6, call / 2, 3};
  };
  CHECK_FALSE(meter.call(key, std::nullopt, at(0)));
  const int times[] = {10, 11, 20, 21, 40, 41};
  for (uint32_t call = 0; call < 6; ++call)
    CHECK_FALSE(meter.call(key, trial(call), at(times[call])));
  const auto samples = meter.call(key, std::nullopt, at(45));
  REQUIRE(samples);
  CHECK(samples->round == 7);
  CHECK(samples->change == 1);
  CHECK(samples->us == std::vector<double>{10'000, 20'000, 5'000});
  CHECK_FALSE(meter.call(key, std::nullopt, at(50)));
  // A trial that follows at once ends the first. A trial that a user's setting ends gives no times.
  CHECK_FALSE(meter.call(key, trial(0), at(60)));
  CHECK_FALSE(meter.call(key, tune::Ledger::Use::Trial{8, 0, 0, 2, 0, 2}, at(70)));
  CHECK_FALSE(meter.call(key, tune::Ledger::Use::Trial{8, 0, 1, 2, 1, 2}, at(80)));
  CHECK(meter.call(key, trial(0), at(95))->us == std::vector<double>{10'000, 15'000});
}

}  // namespace
}  // namespace hetccl::nccl_tuner
