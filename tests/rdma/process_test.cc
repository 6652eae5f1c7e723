// Processes that meet by RDMA: one is killed, one may lock too little memory. In a machine that has
// RDMA (tests/rdma/run); elsewhere nothing here runs.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "fake/patience.h"
#include "process/forked_ranks.h"

namespace {

using hetccl::process::ForkedRanks;
using hetccl::process::Rank;
using hetccl::process::Report;
using hetccl::process::Settings;

bool skipped() {
  return std::getenv("HETCCL_TEST_RDMA") == nullptr;
}

// A user's, since root locks what it likes. Whether the error names the limit.
bool names_the_limit() {
  constexpr rlim_t kTooLittle = 1 << 20;
  constexpr uid_t kUser = 1000;
  const rlimit limit{kTooLittle, kTooLittle};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setuid(kUser) != 0) return false;
  hetcclUniqueId id;
  if (hetcclGetUniqueId(&id) == hetcclSuccess) return false;
  const char* text = hetcclGetLastError(nullptr);
  std::fprintf(stderr, "%s\n", text);
  return std::strstr(text, "HETCCL_TRANSPORT=verbs") != nullptr &&
         std::strstr(text, "ulimit -l") != nullptr;
}

}  // namespace

TEST_CASE("a killed rank becomes an error that names it" * doctest::skip(skipped())) {
  const Settings settings({{"HETCCL_TRANSPORT", std::string("verbs")}});
  const int victim = 1, n = 3;
  ForkedRanks ranks(n, [&](Rank& rank) -> Report {
    setenv("HETCCL_HOSTID", ("host" + std::to_string(rank.rank)).c_str(), 1);
    hetcclComm_t comm = hetccl::process::join(rank, std::to_string(rank.rank).c_str());
    std::vector<float> data(1 << 18);
    for (bool told = false;; told = true) {
      if (hetcclAllReduce(data.data(), data.data(), data.size(), hetcclFloat32, hetcclMax, comm,
                          nullptr) != hetcclSuccess) {
        Report report = hetcclGetLastError(nullptr);
        hetcclCommAbort(comm);
        return report;
      }
      if (!told) rank.ready();
    }
  });
  REQUIRE(ranks.wait_ready());
  ranks.send_signal(victim, SIGKILL);
  for (int rank = 0; rank < n; ++rank) {
    if (rank == victim) continue;
    const Report report = ranks.report(rank, hetccl::fake::kHang);
    CAPTURE(report);
    CHECK(report.find("rank 1") != Report::npos);
    CHECK(ranks.exited(rank));
  }
}

TEST_CASE("too little memory that may be locked is named" * doctest::skip(skipped())) {
  const Settings settings({{"HETCCL_TRANSPORT", std::string("verbs")}});
  const pid_t child = fork();
  if (child == 0) _exit(names_the_limit() ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
