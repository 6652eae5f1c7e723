// The search, with ranks as threads of one process: the sanitizers see it. Processes, and what
// becomes of them: tests/tuner.
#include "nccl-tuner/online.h"

#include <doctest/doctest.h>

#include <array>
#include <thread>

#include "nccl-tuner/costs.h"

namespace hetccl::nccl_tuner {
namespace {

using enum Tactic::Algorithm;

constexpr size_t kRanks = 3, kCalls = 2'500;
using Chosen = std::array<std::vector<std::optional<tune::Setting>>, kRanks>;

Config config_of(const bootstrap::UniqueId& id) {
  Config config;
  config.socket_ifname = "=lo";
  config.liveness_ms = 20'000;  // sanitizers are slow
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

// Calls of one rank, the ring's shorter than others.
void run(size_t rank, const Config& config, const std::string& facts, Chosen& chosen) {
  Online::Options options;
  options.rank = static_cast<int>(rank);
  options.n_ranks = kRanks;
  options.facts = facts;
  auto online = Online::join(config, std::move(options));
  if (!online.ok()) return;
  const Call call = *call_of(kAllReduce, uint64_t{1} << 20U, kRanks);
  const Costs costs = Costs::unknown(kAllReduce);
  for (size_t i = 0; i < kCalls; ++i) {
    const auto setting =
        (*online)->use(call, steady_clock().now(), [&] { return costs.space(uint64_t{1} << 20U); });
    const bool ring = setting && setting->resources.tactic.algorithm == kRing + 1;
    std::this_thread::sleep_for(std::chrono::microseconds(ring ? 50 : 250));
    chosen[rank].push_back(setting);
  }
}

TEST_CASE("online: ranks as threads choose alike, and not only NCCL's own") {
  const Coordinator coordinator;
  const Config config = config_of(coordinator.id);
  Chosen chosen;
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] { run(rank, config, "alike", chosen); });
  for (auto& rank : ranks) rank.join();
  CHECK(chosen[0].size() == kCalls);
  CHECK(chosen[1] == chosen[0]);
  CHECK(chosen[2] == chosen[0]);
  size_t tuned = 0;
  for (const auto& setting : chosen[0]) tuned += setting.has_value() ? 1 : 0;
  CHECK(tuned > 100);
}

TEST_CASE("online: ranks of different communicators do not search") {
  const Coordinator coordinator;
  const Config config = config_of(coordinator.id);
  Chosen chosen;
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] { run(rank, config, rank == 1 ? "other" : "alike", chosen); });
  for (auto& rank : ranks) rank.join();
  for (const auto& one : chosen) CHECK(one.empty());
}

}  // namespace
}  // namespace hetccl::nccl_tuner
