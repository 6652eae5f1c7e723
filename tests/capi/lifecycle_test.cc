// The life of communicators: splits, init in the background, finalize, failures and their effects.
#include <dirent.h>

#include <atomic>

#include "capi/threads.h"
#include "fake/thread.h"

using namespace hetccl::capi_test;

namespace {

hetcclUniqueId make_id() {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  return id;
}

int n_threads() {
  int n = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (readdir(tasks) != nullptr) ++n;
  closedir(tasks);
  return n;
}

// Starts rank `rank` in the background.
hetcclComm_t start(const hetcclUniqueId& id, int n_ranks, int rank, int64_t init_timeout_ms = 0) {
  hetcclConfig_t config = config_of(rank, true);
  config.blocking = 0;
  config.init_timeout_ms = init_timeout_ms;
  hetcclComm_t comm = nullptr;
  CHECK(hetcclCommInitRankConfig(&comm, n_ranks, id, rank, &config) == hetcclInProgress);
  REQUIRE(comm != nullptr);
  return comm;
}

// The sum over all ranks of 1 is their number.
bool sums_to(hetcclComm_t comm, int n_ranks) {
  std::vector<float> data(1000, 1);
  return sum(data, comm, nullptr) == hetcclSuccess && all_are(data, static_cast<float>(n_ranks));
}

struct Part {
  hetcclComm_t comm = nullptr;
  int rank = -1;
  int n_ranks = -1;
};

Part split(hetcclComm_t comm, int color, int key) {
  Part part;
  CHECK(hetcclCommSplit(comm, color, key, &part.comm, nullptr) == hetcclSuccess);
  if (part.comm == nullptr) return part;
  CHECK(hetcclCommUserRank(part.comm, &part.rank) == hetcclSuccess);
  CHECK(hetcclCommCount(part.comm, &part.n_ranks) == hetcclSuccess);
  return part;
}

}  // namespace

TEST_CASE("a split orders by key, then rank, and leaves out who has no color") {
  for (const bool two : {false, true}) {
    const auto comms = join(6, two);
    std::vector<Part> parts(6);
    on_all_ranks(6, [&](int rank) {
      auto& part = parts[static_cast<size_t>(rank)];
      const int color = rank == 4 ? HETCCL_SPLIT_NOCOLOR : rank % 2;
      part = split(comms[static_cast<size_t>(rank)], color, rank == 5 ? -3 : rank == 3 ? 1 : 7);
      if (part.comm != nullptr) CHECK(sums_to(part.comm, part.n_ranks));
      CHECK(sums_to(comms[static_cast<size_t>(rank)], 6));
    });
    CHECK(parts[4].comm == nullptr);
    const int ranks[] = {0, 2, 1, 1, -1, 0};
    const int sizes[] = {2, 3, 2, 3, -1, 3};
    for (size_t rank = 0; rank < 6; ++rank) {
      CHECK(parts[rank].rank == ranks[rank]);
      CHECK(parts[rank].n_ranks == sizes[rank]);
    }
    // A part is split again, and outlives its parent.
    on_all_ranks(6, [&](int rank) {
      CHECK(hetcclCommDestroy(comms[static_cast<size_t>(rank)]) == hetcclSuccess);
      const Part& part = parts[static_cast<size_t>(rank)];
      if (part.comm == nullptr) return;
      const Part lone = split(part.comm, part.rank, 0);
      CHECK(lone.n_ranks == 1);
      CHECK(sums_to(lone.comm, 1));
      CHECK(hetcclCommDestroy(lone.comm) == hetcclSuccess);
      CHECK(sums_to(part.comm, part.n_ranks));
      CHECK(hetcclCommDestroy(part.comm) == hetcclSuccess);
    });
  }
}

TEST_CASE("a color that is none is an error on every rank, and the parent lives on") {
  const auto comms = join(3, true);
  on_all_ranks(3, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)], part = comm;
    CHECK(hetcclCommSplit(comm, rank == 1 ? -2 : 0, 0, &part, nullptr) == hetcclInvalidArgument);
    CHECK(part == nullptr);
    CHECK(std::string(hetcclGetLastError(nullptr)).find("rank 1 gave color -2") !=
          std::string::npos);
    CHECK(sums_to(comm, 3));
    CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
  });
}

TEST_CASE("one thread starts several ranks, none of which blocks it") {
  const auto id = make_id();
  const int before = n_threads();
  std::vector<hetcclComm_t> comms = {start(id, 3, 0), start(id, 3, 1)};
  hetcclResult_t result{};
  CHECK(hetcclCommGetAsyncError(comms[0], &result) == hetcclSuccess);
  CHECK(result == hetcclInProgress);
  int number = 0;
  hetcclComm_t part = nullptr;
  CHECK(hetcclBarrier(comms[0], nullptr) == hetcclInvalidUsage);
  CHECK(std::string(hetcclGetLastError(nullptr)).find("still being set up") != std::string::npos);
  CHECK(hetcclCommCount(comms[0], &number) == hetcclInvalidUsage);
  CHECK(hetcclCommFinalize(comms[0]) == hetcclInvalidUsage);
  CHECK(hetcclCommSplit(comms[0], 0, 0, &part, nullptr) == hetcclInvalidUsage);
  CHECK(std::string(hetcclGetLastError(comms[0])).empty());
  comms.push_back(start(id, 3, 2));
  for (auto* comm : comms) CHECK(settled(comm) == hetcclSuccess);
  on_all_ranks(3, [&](int rank) { CHECK(sums_to(comms[static_cast<size_t>(rank)], 3)); });

  // Splits and their exchanges keep their order, without a thread of the user's.
  std::vector<hetcclComm_t> first(3), second(3);
  for (int rank = 0; rank < 3; ++rank) {
    const auto r = static_cast<size_t>(rank);
    const int color = rank == 1 ? HETCCL_SPLIT_NOCOLOR : 0;
    CHECK(hetcclCommSplit(comms[r], color, -rank, &first[r], nullptr) ==
          (rank == 1 ? hetcclSuccess : hetcclInProgress));
    CHECK(hetcclCommSplit(comms[r], 5, rank, &second[r], nullptr) == hetcclInProgress);
  }
  CHECK(first[1] == nullptr);
  for (const size_t r : {size_t{0}, size_t{2}}) CHECK(settled(first[r]) == hetcclSuccess);
  for (auto* comm : second) CHECK(settled(comm) == hetcclSuccess);
  CHECK(hetcclCommUserRank(first[2], &number) == hetcclSuccess);
  CHECK(number == 0);
  on_all_ranks(3, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    if (rank != 1) CHECK(sums_to(first[r], 2));
    CHECK(sums_to(second[r], 3));
    for (auto* comm : {first[r], second[r], comms[r]}) {
      if (comm != nullptr) CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
    }
  });
  CHECK(n_threads() <= before + 2);  // the engine's and the control plane's
}

TEST_CASE("what is being set up ends at once when it is destroyed or aborted, with its peers") {
  for (const bool abort : {false, true}) {
    CAPTURE(abort);
    const auto id = make_id();
    const int before = n_threads();
    hetcclComm_t one = start(id, 3, 0), other = start(id, 3, 1);
    std::this_thread::sleep_for(hetccl::fake::patient(milliseconds(abort ? 100 : 300)));
    const auto begin = Clock::now();
    CHECK((abort ? hetcclCommAbort(one) : hetcclCommDestroy(one)) == hetcclSuccess);
    CHECK(settled(other) == hetcclRemoteError);
    CHECK(Clock::now() - begin < milliseconds(kLimitMs / 2));
    CHECK(std::string(hetcclGetLastError(other)).find("rank 0") != std::string::npos);
    CHECK(hetcclBarrier(other, nullptr) == hetcclRemoteError);
    CHECK(hetcclCommDestroy(other) == hetcclRemoteError);
    CHECK(n_threads() <= before + 2);
  }
}

TEST_CASE("init_timeout_ms bounds the wait, blocking or not, and names who is missing") {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  const int64_t limit_ms = hetccl::fake::patient_ms(200);
  config.init_timeout_ms = limit_ms;
  hetcclComm_t comm = nullptr;
  const auto begin = Clock::now();
  CHECK(hetcclCommInitRankConfig(&comm, 2, make_id(), 0, &config) == hetcclTimeout);
  CHECK(std::string(hetcclGetLastError(nullptr)).find("rank 1 of 2 never came") !=
        std::string::npos);
  // The smaller of the time-out and its limit applies.
  for (const auto& [timeout, limit] :
       {std::pair{limit_ms, 60'000L}, {60'000L, limit_ms}, {0L, limit_ms}}) {
    config.init_timeout_ms = timeout;
    config.init_limit_ms = limit;
    CHECK(hetcclCommInitRankConfig(&comm, 2, make_id(), 0, &config) == hetcclTimeout);
  }
  comm = start(make_id(), 2, 0, limit_ms);
  CHECK(settled(comm) == hetcclTimeout);
  CHECK(std::string(hetcclGetLastError(comm)).find("rank 1 of 2 never came") != std::string::npos);
  CHECK(Clock::now() - begin < milliseconds(kLimitMs / 2));
  CHECK(hetcclCommAbort(comm) == hetcclSuccess);

  // The same process goes on with a communicator that works.
  const auto comms = join(2, true);
  on_all_ranks(2, [&](int rank) {
    CHECK(sums_to(comms[static_cast<size_t>(rank)], 2));
    CHECK(hetcclCommDestroy(comms[static_cast<size_t>(rank)]) == hetcclSuccess);
  });
}

TEST_CASE("finalize flushes and says goodbye; then only destroy is left") {
  const auto comms = join(2, true);
  on_all_ranks(2, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    hetcclStream_t stream = nullptr;
    CHECK(hetcclHostStreamCreate(&stream) == hetcclSuccess);
    std::vector<float> data(300'000, 1);
    CHECK(sum(data, comm, stream) == hetcclSuccess);
    CHECK(hetcclCommFinalize(comm) == hetcclSuccess);
    CHECK(all_are(data, 2));
    hetcclResult_t result = hetcclInternalError;
    CHECK(hetcclCommGetAsyncError(comm, &result) == hetcclSuccess);
    CHECK(result == hetcclSuccess);
    CHECK(hetcclBarrier(comm, nullptr) == hetcclInvalidUsage);
    CHECK(std::string(hetcclGetLastError(nullptr)).find("finalized") != std::string::npos);
    CHECK(hetcclCommFinalize(comm) == hetcclInvalidUsage);
    CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
    CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
  });
}

TEST_CASE("finalize of a communicator that does not block is in progress while work is") {
  const auto id = make_id();
  std::vector<hetcclComm_t> comms = {start(id, 2, 0), start(id, 2, 1)};
  for (auto* comm : comms) REQUIRE(settled(comm) == hetcclSuccess);
  hetcclStream_t stream = nullptr;
  REQUIRE(hetcclHostStreamCreate(&stream) == hetcclSuccess);
  std::vector<float> mine(1000, 1), others(1000, 1);
  REQUIRE(sum(mine, comms[0], stream) == hetcclSuccess);
  CHECK(hetcclCommFinalize(comms[0]) == hetcclInProgress);
  std::this_thread::sleep_for(milliseconds(50));
  hetcclResult_t result{};
  CHECK(hetcclCommGetAsyncError(comms[0], &result) == hetcclSuccess);
  CHECK(result == hetcclInProgress);
  CHECK(hetcclBarrier(comms[0], nullptr) == hetcclInvalidUsage);
  CHECK(sum(others, comms[1], nullptr) == hetcclSuccess);
  CHECK(settled(comms[0]) == hetcclSuccess);
  CHECK(all_are(mine, 2));
  for (auto* comm : comms) CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
  CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
}

TEST_CASE("an abort ends a finalize that waits for others") {
  const auto id = make_id();
  std::vector<hetcclComm_t> comms = {start(id, 2, 0), start(id, 2, 1)};
  for (auto* comm : comms) REQUIRE(settled(comm) == hetcclSuccess);
  hetcclStream_t stream = nullptr;
  REQUIRE(hetcclHostStreamCreate(&stream) == hetcclSuccess);
  std::vector<float> mine(1000, 1);
  REQUIRE(sum(mine, comms[0], stream) == hetcclSuccess);
  CHECK(hetcclCommFinalize(comms[0]) == hetcclInProgress);
  const auto begin = Clock::now();
  CHECK(hetcclCommAbort(comms[0]) == hetcclSuccess);
  CHECK(Clock::now() - begin < milliseconds(kLimitMs / 2));
  CHECK(settled(comms[1]) == hetcclAborted);
  CHECK(hetcclCommDestroy(comms[1]) == hetcclAborted);
  CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
}

TEST_CASE("communicators come, fail and go on several threads at once") {
  std::vector<hetccl::fake::Thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&wrong, t] {
      for (int round = 0; round < 4; ++round) {
        hetcclUniqueId id;
        if (hetcclGetUniqueId(&id) != hetcclSuccess) return static_cast<void>(++wrong);
        const bool fails = (t + round) % 2 == 0;
        on_all_ranks(2, [&](int rank) {
          const hetcclConfig_t config = config_of(rank, round % 2 == 0);
          hetcclComm_t comm = nullptr;
          if (hetcclCommInitRankConfig(&comm, 2, id, rank, &config) != hetcclSuccess) {
            return static_cast<void>(++wrong);
          }
          std::vector<float> data(fails && rank == 1 ? 999U : 1000U, 1);
          const auto result = sum(data, comm, nullptr);
          if (result != (fails ? hetcclInvalidUsage : hetcclSuccess)) ++wrong;
          if (hetcclCommDestroy(comm) != result) ++wrong;
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
}
