// One rank of four is killed, stopped, late or wrong: every other rank gets an error that names it,
// in time, and lives on.
#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "fake/patience.h"
#include "process/forked_ranks.h"

namespace {

using hetccl::fake::kHang;
using hetccl::fake::patient_ms;
using hetccl::process::ForkedRanks;
using hetccl::process::join;
using hetccl::process::Rank;
using hetccl::process::Report;
using hetccl::process::Settings;
using hetccl::process::wait_for_failure;
using std::chrono::steady_clock;

// Two clusters in the two rank orders.
const char* const kAabb[] = {"A", "A", "B", "B"};
const char* const kAbab[] = {"A", "B", "A", "B"};

// Settings of all ranks in this program, including those of exit_test.cc.
const Settings kLiveness({{"HETCCL_LIVENESS_MS", std::to_string(patient_ms(1000))}});

Report sum_matches(Rank& rank, hetcclComm_t comm, size_t count) {
  std::vector<float> data(count);
  std::iota(data.begin(), data.end(), static_cast<float>(rank.rank));
  if (hetcclAllReduce(data.data(), data.data(), count, hetcclFloat32, hetcclSum, comm, nullptr) !=
      hetcclSuccess) {
    return hetcclGetLastError(nullptr);
  }
  const int n = rank.n_ranks;
  for (size_t i = 0; i < count; ++i) {
    if (data[i] != static_cast<float>(n * static_cast<int>(i) + n * (n - 1) / 2)) return "wrong";
  }
  return "ok";
}

// Reduces until a call fails. Reports the error, and how long the last call took.
Report reduce_until_failure(Rank& rank, const char* const* layout) {
  hetcclComm_t comm = join(rank, layout[rank.rank]);
  std::vector<float> data(1 << 18);
  bool told = false;
  while (true) {
    const auto start = steady_clock::now();
    const hetcclResult_t result = hetcclAllReduce(data.data(), data.data(), data.size(),
                                                  hetcclFloat32, hetcclMax, comm, nullptr);
    if (result != hetcclSuccess) {
      const auto took = steady_clock::now() - start;
      Report report = hetcclGetLastError(nullptr);
      report += took < kHang / 2 ? " [in time]" : " [late]";
      hetcclResult_t again = hetcclBarrier(comm, nullptr);
      report += again == result ? " [sticky]" : " [not sticky]";
      hetcclCommAbort(comm);
      return report;
    }
    if (!told) rank.ready();
    told = true;
  }
}

void check_survivors(ForkedRanks& ranks, int victim) {
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    const Report report = ranks.report(rank, kHang);
    CAPTURE(rank);
    CAPTURE(report);
    CHECK(report.find("rank " + std::to_string(victim)) != Report::npos);
    CHECK(report.find("[in time]") != Report::npos);
    CHECK(report.find("[sticky]") != Report::npos);
    CHECK(ranks.exited(rank));
  }
}

// Names of this process's other threads, with " takes signals" behind those that do.
Report other_threads() {
  Report all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(getpid())) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:")) all += line.substr(6) + ";";
      if (!line.starts_with("SigBlk:")) continue;
      const uint64_t blocked = std::stoull(line.substr(8), nullptr, 16);
      for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD, SIGPROF}) {
        if ((blocked >> (signal - 1) & 1U) == 0) all += " takes signals";
      }
    }
  }
  return all;
}

bool has_names(const Report& threads) {
  const auto names = {"hetccl-engine;", "hetccl-control;", "hetccl-tcp;", "hetccl-crew;"};
  return std::all_of(names.begin(), names.end(),
                     [&](const char* name) { return threads.find(name) != Report::npos; });
}

}  // namespace

TEST_CASE("two clusters of two add up, in both rank orders") {
  for (const auto* layout : {kAabb, kAbab}) {
    ForkedRanks ranks(4, [&](Rank& rank) -> Report {
      hetcclComm_t comm = join(rank, layout[rank.rank]);
      for (const size_t count : {0UL, 1UL, 1023UL, 3'000'001UL}) {
        const Report report = sum_matches(rank, comm, count);
        if (report != "ok") return report;
      }
      return hetcclCommDestroy(comm) == hetcclSuccess ? "ok" : "destroy failed";
    });
    for (int rank = 0; rank < 4; ++rank) CHECK(ranks.report(rank, kHang) == "ok");
  }
}

TEST_CASE("no thread of a communicator takes the process's signals") {
  const Settings settings(
      {{"HETCCL_SHM", "0"}, {"HETCCL_TCP_THREADS", "2"}, {"HETCCL_HOST_THREADS", "2"}});
  ForkedRanks ranks(4, [&](Rank& rank) -> Report {
    hetcclComm_t comm = join(rank, kAabb[rank.rank]);
    const Report sum = sum_matches(rank, comm, 3'000'001);
    Report threads;
    const auto limit = steady_clock::now() + kHang;
    do {  // a thread has its name once it has run
      threads = other_threads();
    } while (!has_names(threads) && steady_clock::now() < limit);
    hetcclCommDestroy(comm);
    return sum == "ok" ? threads : sum;
  });
  for (int rank = 0; rank < 4; ++rank) {
    const Report report = ranks.report(rank, kHang);
    CAPTURE(report);
    CHECK(has_names(report));
    CHECK(report.find("takes signals") == Report::npos);
  }
}

TEST_CASE("settings of security reach every connection: equal ones work, others are explained") {
  char path[] = "/tmp/hetccl-secret-XXXXXX";
  const int fd = mkstemp(path);  // mode 600
  REQUIRE(write(fd, "not the unique id's", 19) == 19);
  close(fd);
  const Settings settings({{"HETCCL_SHM", "0"},
                           {"HETCCL_ENCRYPT", "1"},
                           {"HETCCL_SECRET_FILE", path},
                           {"HETCCL_INIT_TIMEOUT_MS", std::to_string(patient_ms(3000))}});
  for (const char* odd : {"", "HETCCL_ENCRYPT", "HETCCL_SECRET_FILE"}) {
    CAPTURE(odd);
    ForkedRanks ranks(4, [&](Rank& rank) -> Report {
      if (rank.rank == 2 && *odd != '\0') unsetenv(odd);
      hetcclComm_t comm = nullptr;
      hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
      config.cluster = kAabb[rank.rank];
      if (hetcclCommInitRankConfig(&comm, rank.n_ranks, rank.id, rank.rank, &config) !=
          hetcclSuccess) {
        const Report why = hetcclGetLastError(nullptr);
        // Rank 0 still has to tell those that come later.
        if (rank.rank == 0)
          std::this_thread::sleep_for(hetccl::fake::patient(std::chrono::seconds(3)));
        return why;
      }
      Report report = sum_matches(rank, comm, 300'001);
      hetcclCommDestroy(comm);
      return report;
    });
    for (int rank = 0; rank < 4; ++rank) {
      const Report report = ranks.report(rank, kHang);
      CAPTURE(report);
      if (*odd == '\0') CHECK(report == "ok");
      if (*odd != '\0') CHECK(report.find(odd) != Report::npos);
      if (*odd != '\0') CHECK(report.find("rank 2") != Report::npos);
    }
  }
  unlink(path);
}

TEST_CASE("a killed rank becomes an error that names it on every survivor") {
  for (const int victim : {3, 0, 1}) {
    CAPTURE(victim);
    ForkedRanks ranks(4, [](Rank& rank) { return reduce_until_failure(rank, kAabb); });
    REQUIRE(ranks.wait_ready());
    ranks.send_signal(victim, SIGKILL);
    check_survivors(ranks, victim);
  }
}

TEST_CASE("a stopped rank becomes an error that names it on every survivor") {
  for (const int victim : {2, 0}) {
    CAPTURE(victim);
    ForkedRanks ranks(4, [](Rank& rank) { return reduce_until_failure(rank, kAbab); });
    REQUIRE(ranks.wait_ready());
    ranks.send_signal(victim, SIGSTOP);
    check_survivors(ranks, victim);
  }
}

TEST_CASE(
    "unequal counts, types and collectives are errors on every rank, and the process goes on") {
  for (int kind = 0; kind < 3; ++kind) {
    ForkedRanks ranks(4, [kind](Rank& rank) -> Report {
      hetcclComm_t comm = join(rank, kAabb[rank.rank]);
      std::vector<double> data(4096);
      const bool odd = rank.rank == 2;
      const size_t count = odd && kind == 0 ? 1000 : 1001;
      const auto type = odd && kind == 1 ? hetcclInt32 : hetcclFloat32;
      const hetcclResult_t result =
          odd && kind == 2
              ? hetcclBroadcast(data.data(), data.data(), count, type, 0, comm, nullptr)
              : hetcclAllReduce(data.data(), data.data(), count, type, hetcclSum, comm, nullptr);
      if (result != hetcclInvalidUsage) return hetcclGetErrorString(result);
      hetcclCommAbort(comm);
      return "ok";
    });
    for (int rank = 0; rank < 4; ++rank) {
      CAPTURE(kind);
      CAPTURE(rank);
      CHECK(ranks.report(rank, kHang) == "ok");
    }
  }
}

TEST_CASE("a rank that does not enter a collective is a timeout that names the call") {
  const int64_t limit_ms = patient_ms(700);
  ForkedRanks ranks(4, [limit_ms](Rank& rank) -> Report {
    hetcclComm_t comm = join(rank, kAabb[rank.rank]);
    hetcclCommSetTimeout(comm, limit_ms);
    float value = 1;
    if (rank.rank == 1) wait_for_failure(comm);
    const auto result = hetcclAllReduce(&value, &value, 1, hetcclFloat32, hetcclSum, comm, nullptr);
    const Report report = hetcclGetLastError(nullptr);
    hetcclCommAbort(comm);
    return result == hetcclTimeout ? report : hetcclGetErrorString(result);
  });
  for (int rank = 0; rank < 4; ++rank) {
    const Report report = ranks.report(rank, kHang);
    CAPTURE(report);
    CHECK(report == "all_reduce #0 (1 float32, sum) timed out after " + std::to_string(limit_ms) +
                        " ms: rank 1 has not called it (rank 1 has called nothing)");
  }
}

TEST_CASE("abort on one rank ends the call of every other, and a next communicator works") {
  ForkedRanks ranks(2, [](Rank& rank) -> Report {
    hetcclComm_t comm = join(rank, rank.rank == 0 ? "A" : "B");
    float value = 1;
    if (rank.rank == 1) {
      usleep(200'000);
      hetcclCommAbort(comm);
    } else {
      const auto result =
          hetcclAllReduce(&value, &value, 1, hetcclFloat32, hetcclSum, comm, nullptr);
      if (result != hetcclAborted) return hetcclGetErrorString(result);
      hetcclCommAbort(comm);
    }
    // The id carries a listener of rank 0's process; a group of one needs nobody else.
    hetcclUniqueId id;
    if (hetcclGetUniqueId(&id) != hetcclSuccess) return hetcclGetLastError(nullptr);
    Rank alone{0, 1, id, {}};
    comm = join(alone, "A");
    const Report report = sum_matches(alone, comm, 100);
    hetcclCommDestroy(comm);
    return report;
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(ranks.report(rank, kHang) == "ok");
}

TEST_CASE("a full /dev/shm is no obstacle: nothing of hetccl lies there") {
  ForkedRanks ranks(4, [](Rank& rank) -> Report {
    // A mount namespace of this rank's own, whose /dev/shm has one page, and that is taken.
    if (unshare(CLONE_NEWNS) != 0) return "skipped";
    mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (mount("full", "/dev/shm", "tmpfs", 0, "size=4k") != 0) return "skipped";
    std::ofstream("/dev/shm/full") << std::string(4096, 'x');
    hetcclComm_t comm = join(rank, kAabb[rank.rank]);
    const Report report = sum_matches(rank, comm, 1'000'000);
    hetcclCommDestroy(comm);
    return report;
  });
  for (int rank = 0; rank < 4; ++rank) {
    const Report report = ranks.report(rank, kHang);
    if (report == "skipped") {
      MESSAGE("SKIPPED: needs root to mount a full /dev/shm");
    } else {
      CHECK(report == "ok");
    }
  }
}

TEST_CASE("exit without destroy does not hang, and is no failure of what is complete") {
  ForkedRanks ranks(4, [](Rank& rank) -> Report {
    const Report report = sum_matches(rank, join(rank, kAabb[rank.rank]), 1000);
    std::this_thread::sleep_for(hetccl::fake::patient(std::chrono::milliseconds(
        500)));  // the others complete theirs: leaving earlier would be a loss
    return report;
  });
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(ranks.report(rank, kHang) == "ok");
    CHECK(ranks.exited(rank));
  }
}
