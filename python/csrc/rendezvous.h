/// How the ranks of one process group get one unique id through the torch Store.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "hetccl/hetccl.h"

namespace hetccl::torch_backend {

/// Whether any rank of the group has a GPU: the same answer on all, once all have come. Throws
/// DistBackendError.
[[nodiscard]] bool any_rank_has_gpu(c10d::Store& store, int rank, int size, bool has_gpu,
                                    const std::string& group, std::chrono::milliseconds timeout);

/// Rank 0 makes the id and publishes it, or the reason why it could not; the others wait for it.
/// `store` is the process group's own (prefixed). Throws DistBackendError.
[[nodiscard]] hetcclUniqueId share_unique_id(c10d::Store& store, int rank, const std::string& group,
                                             std::chrono::milliseconds timeout);

/// Rank 0, once every rank has joined or the attempt has failed: a later process group under the
/// same prefix must not find what this one left.
void forget_unique_id(c10d::Store& store, int rank) noexcept;

}  // namespace hetccl::torch_backend
