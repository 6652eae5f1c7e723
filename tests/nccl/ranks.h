// Ranks as threads over libhetccl_nccl.so.
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
#include "nccl/abi.h"
#include "nccl/declarations.h"

namespace hetccl::nccl_test {

using fake::on_all_ranks;
using std::chrono::milliseconds;

inline constexpr int kFloat = 7, kInt32 = 2;  // ncclDataType_t
inline constexpr int kSum = 0, kAvg = 4;      // ncclRedOp_t

/// Settings of all communicators in this program.
inline const bool kSettings = [] {
  setenv("HETCCL_INIT_TIMEOUT_MS", std::to_string(fake::kHangMs).c_str(), 1);
  setenv("HETCCL_LIVENESS_MS", std::to_string(fake::patient_ms(2000)).c_str(), 1);
  return true;
}();

inline ncclUniqueId new_id() {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  return id;
}

/// A whole ncclConfig_t of NCCL 2.32, of which the library reads the beginning.
struct Config {
  ncclConfig_t known{};
  int further[14];
};
inline Config config(int blocking) {
  Config made;
  made.known = {.size = sizeof made,
                .magic = NCCL_API_MAGIC,
                .version = 23'203,
                .blocking = blocking,
                .cgaClusterSize = NCCL_CONFIG_UNDEF_INT,
                .minCTAs = NCCL_CONFIG_UNDEF_INT,
                .maxCTAs = NCCL_CONFIG_UNDEF_INT,
                .netName = nullptr,
                .splitShare = NCCL_CONFIG_UNDEF_INT,
                .trafficClass = NCCL_CONFIG_UNDEF_INT,
                .commName = "a test"};
  for (int& one : made.further) one = NCCL_CONFIG_UNDEF_INT;
  return made;
}

inline std::vector<ncclComm_t> join(int n_ranks) {
  const ncclUniqueId id = new_id();
  std::vector<ncclComm_t> comms(static_cast<size_t>(n_ranks));
  std::vector<std::string> wrong(comms.size());
  on_all_ranks(n_ranks, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    if (ncclCommInitRank(&comms[r], n_ranks, id, rank) != ncclSuccess)
      wrong[r] = ncclGetLastError(nullptr);
  });
  for (const auto& text : wrong) REQUIRE(text == "");
  return comms;
}

inline void destroy(const std::vector<ncclComm_t>& comms) {
  on_all_ranks(static_cast<int>(comms.size()), [&](int rank) {
    CHECK(ncclCommDestroy(comms[static_cast<size_t>(rank)]) == ncclSuccess);
  });
}

/// Asks until `comm` is ready or has failed.
inline ncclResult_t settled(ncclComm_t comm) {
  const auto end = std::chrono::steady_clock::now() + fake::kHang;
  ncclResult_t result = ncclInProgress;
  while (result == ncclInProgress && std::chrono::steady_clock::now() < end) {
    if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) return ncclInvalidArgument;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return result;
}

inline ncclResult_t add_up(std::vector<float>& data, ncclComm_t comm) {
  return ncclAllReduce(data.data(), data.data(), data.size(), kFloat, kSum, comm, nullptr);
}

inline bool contains(const char* text, const std::string& part) {
  return std::string(text).find(part) != std::string::npos;
}

}  // namespace hetccl::nccl_test
