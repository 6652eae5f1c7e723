// Tests the search with ranks as threads of one process, so that sanitizers see it. tests/tuner
// runs it with processes and lets some of them die.
#include "nccl-tuner/online.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <thread>

#include "fake/patience.h"
#include "fake/thread.h"
#include "nccl-tuner/costs.h"

namespace hetccl::nccl_tuner {
namespace {

using enum Tactic::Algorithm;

constexpr size_t kRanks = 3, kTuned = 100;
constexpr size_t kAhead = 20;  // most calls by which a rank may be ahead of rank 0
using Chosen = std::array<std::vector<std::optional<tune::Setting>>, kRanks>;

// Progress of rank 0, and the call at which all may stop: ranks make equally many calls, until
// enough of them were tuned.
struct Course {
  std::atomic<size_t> called{0}, last{SIZE_MAX};
};

Config config_of(const bootstrap::UniqueId& id) {
  Config config;
  config.socket_ifname = "=lo";
  config.liveness_ms = fake::kHangMs;
  config.tune_budget = 10'000;
  for (const uint8_t byte : id) config.tuner_id += format("%02x", byte);
  return config;
}

struct Coordinator {
  Coordinator() {
    Config config;
    config.socket_ifname = "=lo";
    service = bootstrap::Service::create(config, Log{LogLevel::Error}).value();
    id = service->unique_id().value();
  }
  std::unique_ptr<bootstrap::Service> service;
  bootstrap::UniqueId id{};
};

// Makes one rank's calls; ring is faster than the other algorithms.
void run(size_t rank, const Config& config, const std::string& facts, Chosen& chosen,
         Course& course) {
  Online::Options options;
  options.rank = static_cast<int>(rank);
  options.n_ranks = kRanks;
  options.facts = facts;
  auto online = Online::join(config, std::move(options));
  if (!online.ok()) return static_cast<void>(course.last = 0);
  const TunedCall call = *call_of(kAllReduce, uint64_t{1} << 20U, kRanks);
  const Costs costs = Costs::unknown(kAllReduce);
  const TimePoint end = steady_clock().now() + fake::kHang;
  size_t tuned = 0;
  for (size_t i = 0; i < course.last; ++i) {
    while (rank > 0 && i > course.called + kAhead && i < course.last) std::this_thread::yield();
    const auto setting =
        (*online)->use(call, steady_clock().now(), [&] { return costs.space(uint64_t{1} << 20U); });
    const bool ring = setting && setting->resources.tactic.algorithm == kRing + 1;
    std::this_thread::sleep_for(std::chrono::microseconds(ring ? 50 : 250));
    chosen[rank].push_back(setting);
    tuned += setting.has_value() ? 1 : 0;
    if (rank > 0) continue;
    course.called = i + 1;
    const bool over = tuned > kTuned || steady_clock().now() > end;
    if (over && course.last == SIZE_MAX) course.last = i + 2 * kAhead;
  }
}

TEST_CASE("online: ranks as threads choose alike, and not only NCCL's own") {
  const Coordinator coordinator;
  const Config config = config_of(coordinator.id);
  Chosen chosen;
  Course course;
  fake::on_all_ranks(
      kRanks, [&](int rank) { run(static_cast<size_t>(rank), config, "alike", chosen, course); });
  CHECK(chosen[0].size() == course.last.load());
  CHECK(chosen[1] == chosen[0]);
  CHECK(chosen[2] == chosen[0]);
  size_t tuned = 0;
  for (const auto& setting : chosen[0]) tuned += setting.has_value() ? 1 : 0;
  CHECK(tuned > kTuned);
}

TEST_CASE("online: ranks of different communicators do not search") {
  const Coordinator coordinator;
  const Config config = config_of(coordinator.id);
  Chosen chosen;
  Course course;
  fake::on_all_ranks(kRanks, [&](int rank) {
    run(static_cast<size_t>(rank), config, rank == 1 ? "other" : "alike", chosen, course);
  });
  for (const auto& one : chosen) CHECK(one.empty());
}

}  // namespace
}  // namespace hetccl::nccl_tuner
