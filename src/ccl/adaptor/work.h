// What calls of the seam are in the terms of hetccl/adaptor.h.
#pragma once

#include <span>
#include <vector>

#include "ccl/ccl.h"
#include "hetccl/adaptor.h"

namespace hetccl::ccl {

inline std::vector<hetcclLibraryPiece> pieces_of(std::span<const Shard> shards) {
  std::vector<hetcclLibraryPiece> pieces;
  pieces.reserve(shards.size());
  for (const Shard& shard : shards)
    pieces.push_back({shard.root, shard.receiver, shard.send, shard.recv, shard.count});
  return pieces;
}

inline std::vector<hetcclLibraryMessage> messages_of(std::span<const Transfer> transfers) {
  std::vector<hetcclLibraryMessage> messages;
  messages.reserve(transfers.size());
  for (const Transfer& one : transfers)
    messages.push_back({one.peer, one.send ? 1 : 0, one.data, one.count});
  return messages;
}

/// `pieces` and `messages` must outlive it.
inline hetcclLibraryWork work_of(hetcclLibraryCall call, DataType type, RedOp op,
                                 std::span<const hetcclLibraryPiece> pieces,
                                 std::span<const hetcclLibraryMessage> messages, void* stream) {
  hetcclLibraryWork work{};
  work.size = sizeof work;
  work.call = call;
  work.type = static_cast<hetcclDataType_t>(type);
  work.op = static_cast<hetcclRedOp_t>(op);
  work.pieces = pieces.data();
  work.n_pieces = pieces.size();
  work.messages = messages.data();
  work.n_messages = messages.size();
  work.stream = stream;
  return work;
}

/// InvalidArgument or Unsupported where the adaptor cannot: `capabilities` are its own.
Status check_broadcast(std::span<const Shard> shards, int n_ranks, uint32_t capabilities);
Status check_exchange(std::span<const Transfer> transfers, int n_ranks, int rank,
                      uint32_t capabilities);

}  // namespace hetccl::ccl
