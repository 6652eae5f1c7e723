// Ranks as threads over the C API.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fake/patience.h"
#include "fake/thread.h"
#include "hetccl/hetccl.h"

namespace hetccl::capi_test {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

inline constexpr int64_t kLimitMs = fake::kHangMs;

using fake::on_all_ranks;

/// Settings of all communicators in this program, unless a test changes them.
inline const bool kSettings = [] {
  setenv("HETCCL_INIT_TIMEOUT_MS", std::to_string(kLimitMs).c_str(), 1);
  setenv("HETCCL_LIVENESS_MS", std::to_string(fake::patient_ms(2000)).c_str(), 1);
  return true;
}();

/// The options of rank `rank`: of cluster rank % 2 when there are `two`.
inline hetcclConfig_t config_of(int rank, bool two) {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.cluster = two && rank % 2 == 1 ? "B" : "A";
  config.timeout_ms = kLimitMs;
  return config;
}

/// One communicator over threads.
inline std::vector<hetcclComm_t> join(int n_ranks, bool two) {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  std::vector<hetcclComm_t> comms(static_cast<size_t>(n_ranks));
  std::vector<std::string> wrong(comms.size());
  on_all_ranks(n_ranks, [&](int rank) {
    const hetcclConfig_t config = config_of(rank, two);
    const auto r = static_cast<size_t>(rank);
    if (hetcclCommInitRankConfig(&comms[r], n_ranks, id, rank, &config) != hetcclSuccess) {
      wrong[r] = hetcclGetLastError(nullptr);
    }
  });
  for (const auto& text : wrong) REQUIRE(text == "");
  return comms;
}

inline hetcclResult_t sum(std::vector<float>& data, hetcclComm_t comm, hetcclStream_t stream) {
  return hetcclAllReduce(data.data(), data.data(), data.size(), hetcclFloat32, hetcclSum, comm,
                         stream);
}

inline bool all_are(const std::vector<float>& data, float value) {
  for (const float element : data) {
    if (element != value) return false;
  }
  return true;
}

/// Asks until `comm` is ready or has failed.
inline hetcclResult_t settled(hetcclComm_t comm) {
  const auto end = Clock::now() + milliseconds(kLimitMs);
  hetcclResult_t result = hetcclInProgress;
  while (result == hetcclInProgress && Clock::now() < end) {
    if (hetcclCommGetAsyncError(comm, &result) != hetcclSuccess) return hetcclInvalidArgument;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return result;
}

}  // namespace hetccl::capi_test
