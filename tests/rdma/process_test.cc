// Processes that meet by RDMA: one is killed, a rail is cut, one may lock too little memory. In a
// machine that has RDMA (tests/rdma/run); elsewhere nothing here runs.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fake/patience.h"
#include "process/forked_ranks.h"
#include "process/killed_rank.h"
#include "rdma/rails.h"

namespace {

using hetccl::process::ForkedRanks;
using hetccl::process::Rank;
using hetccl::process::Report;
using hetccl::process::Settings;

bool skipped() {
  return std::getenv("HETCCL_TEST_RDMA") == nullptr;
}

// Starts as a user, since root locks what it likes. What is wrong; empty: nothing.
std::string start_with_little_memory() {
  constexpr rlim_t kTooLittle = 1 << 20;
  constexpr uid_t kUser = 1000;
  const rlimit limit{kTooLittle, kTooLittle};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setuid(kUser) != 0) return "cannot be a user";
  hetcclUniqueId id;
  return hetcclGetUniqueId(&id) == hetcclSuccess ? "" : hetcclGetLastError(nullptr);
}

bool names_the_limit() {
  const std::string told = start_with_little_memory();
  const char* text = told.c_str();
  std::fprintf(stderr, "%s\n", text);
  return std::strstr(text, "HETCCL_TRANSPORT=verbs") != nullptr &&
         std::strstr(text, "ulimit -l") != nullptr;
}

}  // namespace

TEST_CASE("a killed rank becomes an error that names it" * doctest::skip(skipped())) {
  const Settings settings({{"HETCCL_TRANSPORT", std::string("verbs")}});
  hetccl::process::check_killed_rank();
}

// Ranks 0 and 2 meet on the first rail, 1 and 3 on the second. The rank that sends there finds out
// once its device has given up; all are told.
TEST_CASE("a rail cut in mid-collective is an error with its name on all ranks" *
          doctest::skip(skipped())) {
  const Settings settings({{"HETCCL_TRANSPORT", std::string("verbs")}});
  constexpr int n = 4, kCut = 1;
  ForkedRanks ranks(n, [&](Rank& rank) -> Report {
    const std::string host = "host" + std::to_string(rank.rank / 2);
    setenv("HETCCL_HOSTID", host.c_str(), 1);
    hetcclComm_t comm = hetccl::process::join(rank, host.c_str());
    std::vector<float> data(1 << 18);
    for (int call = 0;; ++call) {
      if (hetcclAllReduce(data.data(), data.data(), data.size(), hetcclFloat32, hetcclMax, comm,
                          nullptr) != hetcclSuccess) {
        Report report = hetcclGetLastError(nullptr);
        hetcclCommAbort(comm);
        return report;
      }
      if (call == 2) rank.ready();
    }
  });
  REQUIRE(ranks.wait_ready());
  const uint64_t before = hetccl::rdma_rails::packets_of(kCut);
  CHECK(before > 0);
  const auto begin = std::chrono::steady_clock::now();
  const hetccl::rdma_rails::Cut cut(kCut);
  for (int rank = 0; rank < n; ++rank) {
    const Report report = ranks.report(rank, hetccl::fake::kHang);
    MESSAGE("rank " << rank << ": " << report);
    CHECK(report.find("over rxe1:1 failed") != Report::npos);
    CHECK(report.find("rxe0") == Report::npos);
    CHECK(ranks.exited(rank));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  MESSAGE("all ranks ended " << took.count() << " s after the cut");
}

// Whether a child finds that `holds`.
bool in_child(bool (*holds)()) {
  const pid_t child = fork();
  if (child == 0) _exit(holds() ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

TEST_CASE("too little memory that may be locked is named" * doctest::skip(skipped())) {
  const Settings settings({{"HETCCL_TRANSPORT", std::string("verbs")}});
  CHECK(in_child(names_the_limit));
}

TEST_CASE("who names no transport needs no memory that may be locked" * doctest::skip(skipped())) {
  CHECK(in_child([] { return start_with_little_memory().empty(); }));
}

// Children write to copies of what the device reads and writes.
TEST_CASE("a rank that forks while data moves gets the right values" * doctest::skip(skipped())) {
  const Settings settings({{"HETCCL_TRANSPORT", std::string("verbs")}});
  constexpr int kCalls = 30, kChildren = 20;
  ForkedRanks ranks(2, [&](Rank& rank) -> Report {
    setenv("HETCCL_HOSTID", ("host" + std::to_string(rank.rank)).c_str(), 1);
    hetcclComm_t comm = hetccl::process::join(rank, std::to_string(rank.rank).c_str());
    rank.ready();
    std::vector<float> data(1 << 18);
    std::thread forks([&] {
      for (int i = 0; i < kChildren; ++i) {
        const pid_t child = fork();
        if (child == 0) {
          std::memset(data.data(), 0xff, data.size() * sizeof(float));
          _exit(0);
        }
        waitpid(child, nullptr, 0);
      }
    });
    Report report = "right";
    for (int call = 1; call <= kCalls; ++call) {
      std::fill(data.begin(), data.end(), static_cast<float>(call * (rank.rank + 1)));
      const auto wrong = [&](float one) { return one != static_cast<float>(3 * call); };
      if (hetcclAllReduce(data.data(), data.data(), data.size(), hetcclFloat32, hetcclSum, comm,
                          nullptr) != hetcclSuccess)
        report = hetcclGetLastError(nullptr);
      else if (std::any_of(data.begin(), data.end(), wrong))
        report = "wrong values in call " + std::to_string(call);
    }
    forks.join();
    hetcclCommDestroy(comm);
    return report;
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(ranks.report(rank, hetccl::fake::kHang) == "right");
}
