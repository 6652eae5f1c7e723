// What a caller of a collective passes, and whether it makes sense.
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
  Factor factor{};           ///< of this rank, for RedOp::PreMulSum
  void* residual = nullptr;  ///< of an even reduction, as long as its input; or null
  /// Of an uneven call: one entry for each block of what this rank sends or receives.
  exec::Layout input{}, output{};
};

/// InvalidArgument naming the argument: a type, root or operator that does not exist, a buffer that
/// is null, blocks that do not fit into memory, buffers that overlap other than in place.
Status check(const CollectiveArguments& arguments, int rank, int n_ranks);

/// The same for messages that go at the same time: a type or peer that does not exist, memory that
/// is null, messages to this rank itself without their other end.
Status check(std::span<const exec::Message> messages, int rank, int n_ranks);

/// The length of a block; of uneven ones their mean, or 0 where only the two ends of a block know
/// it.
[[nodiscard]] uint64_t elements_of_a_block(const CollectiveArguments& arguments, int n_ranks);

}  // namespace hetccl::comm
