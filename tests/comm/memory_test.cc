// Ranks that run out of memory: the host process lives, and no rank goes on with another call than
// the others.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/exception.h"
#include "comm/ranks.h"
#include "fake/no_memory.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;
using fake::NoMemory;
using std::chrono::milliseconds;

constexpr size_t kElements = 1000;

Config quick() {
  Config config;
  config.log_level = "error";
  config.liveness_ms = 1000;
  config.timeout_ms = 20'000;
  config.init_timeout_ms = 20'000;
  config.tcp_threads = 0;
  config.deterministic = true;  // nothing is measured
  return config;
}

// Calls as the C API does: returns an exception as an error.
template <typename Call>
Status guarded(const Call& call) {
  try {
    return call();
  } catch (...) {
    return caught();
  }
}

// Sums `base` + rank over all ranks. Sets `right`, unless the call fails.
Status sum_of(Communicator& communicator, float base, bool* right) {
  std::vector<float> data(kElements, base + static_cast<float>(communicator.membership().rank()));
  const Status status = guarded([&] { return sum(communicator, data, nullptr); });
  const auto n = static_cast<float>(communicator.membership().n_ranks());
  const float expected = n * base + n * (n - 1) / 2;
  if (status.ok())
    *right = std::all_of(data.begin(), data.end(), [&](float one) { return one == expected; });
  return status;
}

// Two sums, in the first of which rank 1 has no memory for the allocation `number`. A call that was
// refused there, and has left the communicator as it was, is made again.
struct Outcome {
  int64_t allocations = 0;
  bool right = true;
  Status first[3], second[3];
};

Outcome sum_without_memory(Ranks& ranks, int64_t number) {
  Outcome outcome;
  on_all_ranks(ranks.n(), [&](int rank) {
    Communicator& communicator = *ranks[rank];
    bool right = true;
    Status& first = outcome.first[rank];
    if (rank == 1) {
      std::vector<float> data(kElements, 11.0F);
      {
        const NoMemory none(number);
        first = guarded([&] { return sum(communicator, data, nullptr); });
        outcome.allocations = NoMemory::made();
      }
      const bool again = !first.ok() && communicator.dispatch().failure().ok();
      if (again) first = sum_of(communicator, 10, &right);
    } else {
      first = sum_of(communicator, 10, &right);
    }
    outcome.second[rank] = sum_of(communicator, 1000, &right);
    if (!right) outcome.right = false;
  });
  return outcome;
}

}  // namespace

TEST_CASE("a rank without memory for a call makes it with the others, or fails it for all") {
  for (const auto& labels : {std::vector<std::string>{"A", "A", "A"}, {"A", "A", "B"}}) {
    Ranks ranks(labels, quick(), true);
    const int64_t all = sum_without_memory(ranks, NoMemory::kNever).allocations;
    CAPTURE(all);
    int failed = 0;
    // Each of the last, where the call is counted and launched, and some of those before.
    for (int64_t number = 0; number < all; number += number + 12 < all ? all / 4 : 4) {
      CAPTURE(number);
      ranks.join();
      const Outcome outcome = sum_without_memory(ranks, number);
      CHECK(outcome.right);
      const bool fails = std::any_of(outcome.first, outcome.first + ranks.n(),
                                     [](const Status& one) { return !one.ok(); });
      for (int rank = 0; rank < ranks.n(); ++rank) {
        const Status& second = outcome.second[rank];
        CAPTURE(second.message());
        CHECK(second.ok() == !fails);
        if (fails) CHECK(second.message().find("out of memory") != std::string::npos);
      }
      failed += fails ? 1 : 0;
    }
    CHECK(failed > 0);
  }
}

namespace {

// Two ranks, of which none can allocate what threads of that name ask for by that number: join,
// sum, and leave. Returns how many were asked for. Nothing here may end the process, nor hang.
int64_t live_without_memory(const char* thread, int64_t number, int64_t more) {
  Config config = quick();
  config.init_timeout_ms = 1'500;  // where not even a failure can be told
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (int rank = 0; rank < 2; ++rank)
    runtimes.push_back(std::move(Runtime::create(config)).value());
  const auto id = runtimes[0]->service().unique_id().value();
  std::optional<NoMemory> none(std::in_place, thread, number, more);
  on_all_ranks(2, [&](int rank) {
    Runtime& runtime = *runtimes[static_cast<size_t>(rank)];
    CommunicatorOptions options;
    options.rank = rank;
    options.n_ranks = 2;
    options.cluster = rank == 0 ? "A" : "B";
    options.blocking = false;
    auto made = Communicator::create(runtime, id, options);
    if (!made.ok()) return;
    const std::shared_ptr<Communicator> communicator = std::move(made).value();
    while (communicator->in_progress()) std::this_thread::sleep_for(milliseconds(1));
    std::vector<float> data(kElements, 1.0F);
    const Status called = guarded([&] { return sum(*communicator, data, nullptr); });
    const Status failure = guarded([&] { return communicator->dispatch().failure(); });
    CHECK((!called.ok() || !failure.ok() || data.back() == 2.0F));
    static_cast<void>(guarded([&] { return communicator->finish(); }));
  });
  const int64_t made = NoMemory::made();
  none.reset();
  return made;
}

}  // namespace

TEST_CASE("threads of hetccl without memory end communicators, not the process") {
  for (const char* thread : {"hetccl-control", "hetccl-chores"}) {
    CAPTURE(std::string(thread));
    const int64_t all = live_without_memory(thread, NoMemory::kNever, 0);
    CHECK(all > 0);
    for (const int64_t part : {1, 2, 3}) {
      CAPTURE(part);
      live_without_memory(thread, all * part / 4, part == 2 ? 20 : 0);
    }
  }
}
