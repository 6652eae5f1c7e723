// Checks the arguments of a collective call.
#pragma once

#include <span>

#include "base/status.h"
#include "base/types.h"
#include "exec/message.h"
#include "exec/operation.h"

namespace hetccl::comm {

/// Arguments of one collective, as in hetccl.h.
struct CollectiveArguments {
  Signature signature;
  const void* send = nullptr;
  void* recv = nullptr;
  Factor factor{};           ///< this rank's factor, for RedOp::PreMulSum
  void* residual = nullptr;  ///< of an even reduction, as long as its input; or null
  /// For uneven calls: one entry for each block that this rank sends (`input`) or receives
  /// (`output`).
  exec::Layout input{}, output{};
};

/// Returns InvalidArgument, naming the argument, for an unknown type, root or operator, a null
/// buffer, blocks that exceed memory, or buffers that overlap other than in place.
Status check(const CollectiveArguments& arguments, int rank, int n_ranks);

/// Checks messages that are posted together: unknown types or peers, null memory, and a message to
/// this rank itself whose other end is missing.
Status check(std::span<const exec::Message> messages, int rank, int n_ranks);

/// Returns the length of a block. For uneven blocks it is their mean, or 0 if only the two ends of
/// a block know its length.
[[nodiscard]] uint64_t elements_of_a_block(const CollectiveArguments& arguments, int n_ranks);

}  // namespace hetccl::comm
