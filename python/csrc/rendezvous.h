/// Gives the ranks of one process group one unique id through the torch Store. Keys that an earlier
/// attempt has left, dead or alive, do not disturb this one.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "hetccl/hetccl.h"

namespace hetccl::torch_backend {

/// Facts that all ranks of a group know once all have come.
struct Arrival {
  bool any_gpu = false;
  std::string session;  ///< random: unique among attempts under the same prefix
};

/// Blocks until all ranks of the group have come. Throws DistBackendError, also if another process
/// comes as this rank.
[[nodiscard]] Arrival arrive(c10d::Store& store, int rank, int size, bool has_gpu,
                             const std::string& group, std::chrono::milliseconds timeout);

/// How many of a group's ranks torch has bound to a device (`device_id`).
enum class Binding : uint8_t { None, Some, All };

/// Declares whether this rank is bound; called once per rank and group. Does not block.
void declare_binding(c10d::Store& store, const std::string& session, int size, bool bound);
/// Returns the same answer on all ranks. Blocks until all ranks have declared theirs. Throws
/// DistBackendError.
[[nodiscard]] Binding await_binding(c10d::Store& store, const std::string& session, int rank,
                                    const std::string& group, std::chrono::milliseconds timeout);

/// Blocks until all ranks have made their first call of the group. A rank with a GPU may take long
/// for that; later delays are the network's. Throws DistBackendError naming the ranks that have
/// not.
void await_first_call(c10d::Store& store, const std::string& session, int rank, int size,
                      const std::string& group, std::chrono::milliseconds timeout);

/// Rank 0 makes the id and publishes it, or the reason why it could not; the others wait for it.
/// `store` is the process group's own (prefixed). Throws DistBackendError.
[[nodiscard]] hetcclUniqueId share_unique_id(c10d::Store& store, const std::string& session,
                                             int rank, const std::string& group,
                                             std::chrono::milliseconds timeout);

/// On rank 0, once every rank has joined or the attempt has failed: removes the secret from the
/// Store.
void forget_unique_id(c10d::Store& store, const std::string& session, int rank) noexcept;

}  // namespace hetccl::torch_backend
