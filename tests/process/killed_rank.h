// Ranks on hosts of their own, of which one is killed in the middle of a collective.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "fake/patience.h"
#include "process/forked_ranks.h"

namespace hetccl::process {

/// Kills rank 1 of three, and checks that the others fail, name it and end.
inline void check_killed_rank() {
  const int victim = 1, n = 3;
  ForkedRanks ranks(n, [&](Rank& rank) -> Report {
    setenv("HETCCL_HOSTID", ("host" + std::to_string(rank.rank)).c_str(), 1);
    hetcclComm_t comm = join(rank, std::to_string(rank.rank).c_str());
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
    const Report report = ranks.report(rank, fake::kHang);
    CAPTURE(report);
    CHECK(report.find("rank 1") != Report::npos);
    CHECK(ranks.exited(rank));
  }
}

}  // namespace hetccl::process
