// Ranks as processes that share GPUs.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

#include "bootstrap/unique_id.h"
#include "process/forked_ranks.h"

namespace hetccl::gpu_tests {

/// Has vendors' libraries take this process for a host of its own, so that ranks of a cluster may
/// share a GPU. Returns where the ranks meet. Before the process loads such a library.
inline bootstrap::UniqueId become_own_host(const process::Rank& rank) {
  setenv("NCCL_HOSTID", ("rank" + std::to_string(rank.rank)).c_str(), 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  bootstrap::UniqueId id{};
  static_assert(sizeof(id) == sizeof(rank.id));
  std::memcpy(&id, &rank.id, sizeof(id));
  return id;
}

}  // namespace hetccl::gpu_tests
