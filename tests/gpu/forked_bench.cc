// Measures the cost of the second vendor's table: all-reduces of two clusters of two GPU ranks. The
// first cluster belongs to the first vendor of HETCCL_TEST_VENDORS. The second belongs to it as
// well, with its streams' own words for flags or with kernels that poll flags; or it belongs to the
// second vendor. Ranks are processes that share GPU 0: run it under NVIDIA's MPS, or they take
// turns.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/clock.h"
#include "fake/patience.h"
#include "gpu/forked.h"
#include "gpu/gpu.h"
#include "gpu/job.h"

namespace {

using namespace hetccl;
using namespace hetccl::gpu_tests;

constexpr std::array<uint64_t, 4> kElements = {1024, 1 << 18, 1 << 22, 1 << 24};
constexpr int kCalls = 30, kRounds = 5, kTurns = 3;

// Microseconds of a call in a row, the least of the rounds.
double time_calls(comm::Communicator& communicator, device::Device& device, device::Stream& stream,
                  void* memory, uint64_t count) {
  comm::CollectiveArguments arguments;
  arguments.signature.collective = Collective::AllReduce;
  arguments.signature.type = DataType::Float32;
  arguments.signature.op = RedOp::Sum;
  arguments.signature.count = count;
  arguments.send = arguments.recv = memory;
  double best = 1e9;
  for (int round = 0; round <= kRounds; ++round) {
    const TimePoint start = steady_clock().now();
    for (int i = 0; i < kCalls; ++i)
      if (!communicator.dispatch().call(arguments, stream.native()).ok()) std::abort();
    if (!drain(device, stream)) std::abort();
    const std::chrono::duration<double, std::micro> took = steady_clock().now() - start;
    if (round > 0) best = std::min(best, took.count() / kCalls);
  }
  return best;
}

// The first vendor's table, without words.
std::shared_ptr<const device::gpu::Api> table_without_words() {
  auto api = std::const_pointer_cast<device::gpu::Api>(
      row_of(vendors().front()).load_runtime(Config::from_environment().value()).value());
  api->wait_word = nullptr;
  api->write_word = nullptr;
  return api;
}

process::Report run_rank(const std::vector<Place>& places, process::Rank& rank, bool words) try {
  const bootstrap::UniqueId id = become_own_host(rank);
  Config config = Config::from_environment().value();
  config.tune = "off";
  Job job(places, config, rank.rank, id, words || rank.rank < 2 ? nullptr : table_without_words());
  std::ostringstream text;
  job.on_all(
      [&](int, comm::Communicator& communicator, device::Device& device, device::Stream& stream) {
        void* memory = device.allocate(kElements.back() * sizeof(float)).value();
        for (const uint64_t count : kElements)
          text << time_calls(communicator, device, stream, memory, count) << ' ';
        device.free(memory);
      });
  return text.str();
} catch (...) {  // doctest's, which has printed why
  return "";
}

struct Contender {
  std::string name, second;
  bool words;
  std::array<double, kElements.size()> best;
};

void run(Contender& contender) {
  const std::string first = vendors().front() + ":0", second = contender.second + ":0";
  const std::vector<Place> places = {{first, "A"}, {first, "A"}, {second, "B"}, {second, "B"}};
  process::ForkedRanks ranks(static_cast<int>(places.size()), [&](process::Rank& rank) {
    return run_rank(places, rank, contender.words);
  });
  std::istringstream text(ranks.report(0, hetccl::fake::kHang));
  for (double& best : contender.best) {
    double time = 1e9;
    text >> time;
    best = std::min(best, time);
  }
  for (size_t r = 0; r < places.size(); ++r) ranks.exited(static_cast<int>(r));
}

}  // namespace

TEST_CASE("all-reduces of two vendors, of those of one") {
  const std::string &first = vendors().front(), &second = vendors().back();
  std::vector<Contender> contenders = {{first + " + " + first, first, true, {}},
                                       {"the same, flags by kernels", first, false, {}},
                                       {first + " + " + second, second, true, {}}};
  for (Contender& contender : contenders) contender.best.fill(1e9);
  for (int turn = 0; turn < kTurns; ++turn)
    for (Contender& contender : contenders) run(contender);
  for (size_t i = 0; i < kElements.size(); ++i) {
    for (const Contender& contender : contenders) {
      std::printf("all-reduce of %8zu bytes: %-28s %9.1f us, %.3f of the first\n",
                  kElements[i] * sizeof(float), contender.name.c_str(), contender.best[i],
                  contender.best[i] / contenders[0].best[i]);
    }
  }
}
