/// How the ranks of one process group get one unique id through the torch Store. Whatever an
/// earlier attempt to make the group has left there, dead or alive, takes no part in this one.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "hetccl/hetccl.h"

namespace hetccl::torch_backend {

/// What all ranks of a group know once all have come.
struct Arrival {
  bool any_gpu = false;
  std::string session;  ///< random: tells this attempt from all others under the same prefix
};

/// Blocks until all ranks of the group have come. Throws DistBackendError, also if another process
/// comes as this rank.
[[nodiscard]] Arrival arrive(c10d::Store& store, int rank, int size, bool has_gpu,
                             const std::string& group, std::chrono::milliseconds timeout);

/// How many ranks of a group torch has bound to a device (`device_id`).
enum class Binding : uint8_t { None, Some, All };

/// Says whether this rank is bound. Once for each rank and group; does not block.
void declare_binding(c10d::Store& store, const std::string& session, int size, bool bound);
/// The same answer on all ranks. Blocks until all have declared theirs. Throws DistBackendError.
[[nodiscard]] Binding await_binding(c10d::Store& store, const std::string& session, int rank,
                                    const std::string& group, std::chrono::milliseconds timeout);

/// Blocks until all ranks have made their first call of the group, for which a rank with a GPU may
/// take its time: what follows is the network's. Throws DistBackendError naming the ranks that have
/// not.
void await_first_call(c10d::Store& store, const std::string& session, int rank, int size,
                      const std::string& group, std::chrono::milliseconds timeout);

/// Rank 0 makes the id and publishes it, or the reason why it could not; the others wait for it.
/// `store` is the process group's own (prefixed). Throws DistBackendError.
[[nodiscard]] hetcclUniqueId share_unique_id(c10d::Store& store, const std::string& session,
                                             int rank, const std::string& group,
                                             std::chrono::milliseconds timeout);

/// Rank 0, once every rank has joined or the attempt has failed: takes the secret out of the Store.
void forget_unique_id(c10d::Store& store, const std::string& session, int rank) noexcept;

}  // namespace hetccl::torch_backend
