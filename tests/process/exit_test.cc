// Processes that fork, or that end without a word: nobody hangs, nobody crashes, peers are told.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "fake/patience.h"
#include "process/forked_ranks.h"

namespace {

using hetccl::process::ForkedRanks;
using hetccl::process::join;
using hetccl::process::Rank;
using hetccl::process::Report;
using hetccl::process::Settings;
using hetccl::process::wait_for_failure;
using std::chrono::steady_clock;

constexpr auto kLimit = hetccl::fake::kHang;

hetcclResult_t sum(std::vector<float>& data, hetcclComm_t comm, hetcclStream_t stream = nullptr) {
  return hetcclAllReduce(data.data(), data.data(), data.size(), hetcclFloat32, hetcclSum, comm,
                         stream);
}

// Constructed before hetccl is used, and so destroyed after it has let go.
std::vector<float> pending_data(100'000, 1);

// Forks a child that does nothing with hetccl and ends by exit() or _exit(); its wait status.
int fork_child(bool by_exit) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(hetccl::fake::kAlarm);
    usleep(20'000);
    if (by_exit) std::exit(0);
    _exit(0);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

// Reduces until a call fails, and reports the error.
Report reduce_until_failure(hetcclComm_t comm) {
  std::vector<float> data(1000, 1);
  while (sum(data, comm) == hetcclSuccess) {
  }
  return hetcclGetLastError(nullptr);
}

}  // namespace

TEST_CASE("children by fork end cleanly while their parent goes on computing") {
  for (const bool two_clusters : {false, true}) {
    ForkedRanks ranks(2, [&](Rank& rank) -> Report {
      hetcclComm_t comm = join(rank, two_clusters && rank.rank == 1 ? "B" : "A");
      hetcclStream_t stream = nullptr;
      if (hetcclHostStreamCreate(&stream) != hetcclSuccess) return "no stream";
      for (int round = 0; round < 6; ++round) {
        // Work is in flight when the child is born and when it ends.
        std::vector<std::vector<float>> data(20, std::vector<float>(50'000, 1));
        for (auto& buffer : data) {
          if (sum(buffer, comm, stream) != hetcclSuccess) return hetcclGetLastError(nullptr);
        }
        const int status = fork_child(round % 2 == 0);
        if (status != 0) return "a child ended with status " + std::to_string(status);
        if (hetcclHostStreamDestroy(stream) != hetcclSuccess) return "destroy";
        if (hetcclHostStreamCreate(&stream) != hetcclSuccess) return "create";
        for (const auto& buffer : data) {
          if (buffer.front() != 2 || buffer.back() != 2) return "wrong values";
        }
      }
      return hetcclCommDestroy(comm) == hetcclSuccess ? "ok" : hetcclGetLastError(nullptr);
    });
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(ranks.report(rank, kLimit) == "ok");
      CHECK(ranks.exited(rank));
    }
  }
}

TEST_CASE("exit() with all work complete is a goodbye") {
  for (const int leaver : {0, 2}) {
    ForkedRanks ranks(3, [leaver](Rank& rank) -> Report {
      hetcclComm_t comm = join(rank, rank.rank == 1 ? "B" : "A");
      std::vector<float> data(1000, 1);
      if (sum(data, comm) != hetcclSuccess) return hetcclGetLastError(nullptr);
      if (rank.rank == leaver) std::exit(0);
      std::this_thread::sleep_for(hetccl::fake::patient(
          std::chrono::milliseconds(1'400)));  // longer than the liveness time
      hetcclResult_t result{};
      if (hetcclCommGetAsyncError(comm, &result) != hetcclSuccess) return "?";
      if (result != hetcclSuccess) return hetcclGetLastError(comm);
      return hetcclCommDestroy(comm) == hetcclSuccess ? "ok" : hetcclGetLastError(nullptr);
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != leaver) CHECK(ranks.report(rank, kLimit) == "ok");
      CHECK(ranks.exited(rank));
    }
  }
}

TEST_CASE("exit() while others go on is an error that names the rank") {
  for (const int leaver : {0, 2}) {
    ForkedRanks ranks(3, [leaver](Rank& rank) -> Report {
      hetcclComm_t comm = join(rank, rank.rank == 1 ? "B" : "A");
      std::vector<float> data(1000, 1);
      if (rank.rank == leaver) {
        for (int i = 0; i < 5; ++i) {
          if (sum(data, comm) != hetcclSuccess) return hetcclGetLastError(nullptr);
        }
        std::exit(0);
      }
      return reduce_until_failure(comm);
    });
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(ranks.exited(rank));
      if (rank == leaver) continue;
      const Report report = ranks.report(rank, kLimit);
      CAPTURE(report);
      CHECK(report.find("all_reduce #5") != Report::npos);
      CHECK(report.find("rank " + std::to_string(leaver) + " ") != Report::npos);
    }
  }
}

TEST_CASE("exit() ends all communicators at once, though their peer has stopped") {
  constexpr int kCommunicators = 8;
  const Settings settings(
      {{"HETCCL_LIVENESS_MS", std::to_string(60'000)}});  // no rank is lost meanwhile
  ForkedRanks ranks(2, [](Rank& rank) -> Report {
    hetcclComm_t first = join(rank, rank.rank == 0 ? "A" : "B");
    std::vector<hetcclComm_t> comms(kCommunicators, nullptr);
    for (hetcclComm_t& comm : comms)
      if (hetcclCommSplit(first, 0, rank.rank, &comm, nullptr) != hetcclSuccess)
        return hetcclGetLastError(nullptr);
    rank.ready();
    if (rank.rank == 0) raise(SIGSTOP);
    hetcclStream_t stream = nullptr;
    if (hetcclHostStreamCreate(&stream) != hetcclSuccess) return "no stream";
    for (hetcclComm_t comm : comms)
      if (sum(pending_data, comm, stream) != hetcclSuccess) return hetcclGetLastError(nullptr);
    std::exit(0);
  });
  REQUIRE(ranks.wait_ready());
  const auto begin = steady_clock::now();
  CHECK(ranks.exited(1));
  // 2 s of grace, and one for the peer's word: for all together.
  CHECK(steady_clock::now() - begin <
        std::chrono::seconds(2) +
            hetccl::fake::patient(std::chrono::milliseconds(1000 * kCommunicators / 2)));
}

TEST_CASE("exit() with work pending ends in time, and the peers are told why") {
  for (const int leaver : {0, 1}) {
    ForkedRanks ranks(2, [leaver](Rank& rank) -> Report {
      hetcclComm_t comm = join(rank, rank.rank == 0 ? "A" : "B");
      if (rank.rank == leaver) {
        hetcclStream_t stream = nullptr;
        if (hetcclHostStreamCreate(&stream) != hetcclSuccess) return "no stream";
        if (sum(pending_data, comm, stream) != hetcclSuccess) return hetcclGetLastError(nullptr);
        std::exit(0);
      }
      wait_for_failure(comm);  // never calls it, within the other's two seconds of grace
      hetcclResult_t result{};
      if (hetcclCommGetAsyncError(comm, &result) != hetcclSuccess) return "?";
      const Report report = hetcclGetLastError(comm);
      hetcclCommAbort(comm);
      return report;
    });
    const auto begin = steady_clock::now();
    CHECK(ranks.exited(leaver));
    CHECK(steady_clock::now() - begin < kLimit / 2);
    const Report report = ranks.report(1 - leaver, kLimit);
    CAPTURE(report);
    CHECK(report.find("rank " + std::to_string(leaver) + ": its process exited before") !=
          Report::npos);
    CHECK(ranks.exited(1 - leaver));
  }
}

TEST_CASE(
    "exit() writes the traces of communicators that nobody destroyed; a forked child does not") {
  char folder[] = "/tmp/hetccl-exit-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const Settings settings({{"HETCCL_TRACE", std::string(folder) + "/trace.%r.%p.json"}});
  ForkedRanks ranks(2, [](Rank& rank) -> Report {
    hetcclComm_t comm = join(rank, rank.rank == 1 ? "B" : "A");
    std::vector<float> data(1000, 1);
    if (sum(data, comm) != hetcclSuccess) return hetcclGetLastError(nullptr);
    if (fork_child(true) != 0) return "a child failed";
    std::exit(0);
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(ranks.exited(rank));
  size_t n_files = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    CHECK(file.file_size() > 1000);
    ++n_files;
  }
  CHECK(n_files == 2);
  std::filesystem::remove_all(folder);
}

TEST_CASE("exit() while a communicator is being set up ends in time") {
  ForkedRanks ranks(1, [](Rank& rank) -> Report {
    hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    hetcclComm_t comm = nullptr;
    if (hetcclCommInitRankConfig(&comm, 2, rank.id, 0, &config) != hetcclInProgress) return "?";
    std::exit(0);
  });
  CHECK(ranks.exited(0));
}

TEST_CASE("after a failure the same process forms a communicator that works") {
  ForkedRanks ranks(3, [](Rank& rank) -> Report {
    hetcclComm_t comm = join(rank, rank.rank == 1 ? "B" : "A");
    std::vector<float> data(rank.rank == 2 ? 999U : 1000U, 1);
    if (sum(data, comm) != hetcclInvalidUsage) return "no failure";
    if (hetcclCommDestroy(comm) != hetcclInvalidUsage) return "destroy";
    // Each rank is alone this time, with an id of its own.
    hetcclUniqueId id;
    if (hetcclGetUniqueId(&id) != hetcclSuccess) return hetcclGetLastError(nullptr);
    if (hetcclCommInitRank(&comm, 1, id, 0) != hetcclSuccess) return hetcclGetLastError(nullptr);
    if (sum(data, comm) != hetcclSuccess) return hetcclGetLastError(nullptr);
    return hetcclCommDestroy(comm) == hetcclSuccess ? "ok" : hetcclGetLastError(nullptr);
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(ranks.report(rank, kLimit) == "ok");
}
