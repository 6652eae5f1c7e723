// Several collectives in flight: on several streams of one communicator, and on communicators that
// know nothing of each other.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "comm/ranks.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;

constexpr int kThreads = 3, kRounds = 12;

// Lets the threads of a rank take turns, so that all ranks call in the same order.
class Turns {
 public:
  template <typename Body>
  void take(int turn, Body&& body) {
    std::unique_lock lock(mutex_);
    next_.wait(lock, [&] { return now_ == turn; });
    body();
    ++now_;
    next_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable next_;
  int now_ = 0;
};

// A thread's buffers, all of which are in flight at once.
std::vector<std::vector<float>> buffers_of(int thread, int rank) {
  std::vector<std::vector<float>> buffers;
  for (int round = 0; round < kRounds; ++round) {
    const auto count = static_cast<size_t>(1 + 997 * ((round * 7 + thread * 3) % 11));
    buffers.emplace_back(count, static_cast<float>(1 + rank + thread + round));
  }
  return buffers;
}

bool are_sums(const std::vector<std::vector<float>>& buffers, int thread, int n_ranks) {
  for (int round = 0; round < kRounds; ++round) {
    const int sum = n_ranks * (1 + thread + round) + n_ranks * (n_ranks - 1) / 2;
    const auto& buffer = buffers[static_cast<size_t>(round)];
    if (!std::all_of(buffer.begin(), buffer.end(),
                     [&](float x) { return x == static_cast<float>(sum); }))
      return false;
  }
  return true;
}

Config config_of(bool shm) {
  Config config;
  config.transport_shm = shm;
  config.slice_bytes = 4096;  // many slices of many collectives
  config.tcp_threads = 2;
  return config;
}

}  // namespace

TEST_CASE("threads of a rank call in turn, each on a stream of its own, and nobody waits") {
  for (const bool shm : {true, false}) {
    CAPTURE(shm);
    Ranks ranks({"A", "B", "A", "B", "C"}, config_of(shm), false);
    std::atomic<int> wrong{0};
    on_all_ranks(ranks, [&](int rank) {
      Turns turns;
      on_all_ranks(kThreads, [&](int thread) {
        auto buffers = buffers_of(thread, rank);
        void* stream = ranks.runtime(rank).create_host_stream().value();
        for (int round = 0; round < kRounds; ++round) {
          turns.take(round * kThreads + thread, [&] {
            if (!sum(*ranks[rank], buffers[static_cast<size_t>(round)], stream).ok()) ++wrong;
          });
        }
        if (!ranks.runtime(rank).destroy_host_stream(stream).ok()) ++wrong;  // waits
        if (!are_sums(buffers, thread, ranks.n())) ++wrong;
      });
      if (!ranks[rank]->dispatch().failure().ok()) ++wrong;
    });
    CHECK(wrong.load() == 0);
  }
}

TEST_CASE("communicators of the same ranks are used by threads that agree on no order") {
  for (const bool share : {true, false}) {
    CAPTURE(share);
    Ranks ranks({"A", "B", "A", "B"}, config_of(!share), share);
    std::vector<std::vector<std::shared_ptr<Communicator>>> sets;  // by thread, then rank
    for (int thread = 0; thread < kThreads; ++thread) {
      auto& set = sets.emplace_back();
      for (int rank = 0; rank < ranks.n(); ++rank) set.push_back(ranks[rank]);
      ranks.join();
    }
    std::atomic<int> wrong{0};
    on_all_ranks(ranks.n() * kThreads, [&](int who) {
      const int rank = who / kThreads, thread = who % kThreads;
      Communicator& mine = *sets[static_cast<size_t>(thread)][static_cast<size_t>(rank)];
      auto buffers = buffers_of(thread, rank);
      for (auto& buffer : buffers) {
        if (!sum(mine, buffer).ok()) ++wrong;
      }
      if (!are_sums(buffers, thread, ranks.n())) ++wrong;
    });
    CHECK(wrong.load() == 0);
  }
}
