// Converts calls of the seam to the terms of hetccl/adaptor.h.
#pragma once

#include <span>
#include <vector>

#include "ccl/ccl.h"
#include "hetccl/adaptor.h"

namespace hetccl::ccl {

/// The pieces and messages of a call. `set` allocates only if a list is longer than all before.
struct Lists {
  std::vector<hetcclLibraryPiece> pieces;
  std::vector<hetcclLibraryMessage> messages;

  void set(std::span<const Shard> shards, std::span<const Transfer> transfers) {
    pieces.clear();
    for (const Shard& shard : shards)
      pieces.push_back({shard.root, shard.receiver, shard.send, shard.recv, shard.count});
    messages.clear();
    for (const Transfer& one : transfers)
      messages.push_back({one.peer, one.send ? 1 : 0, one.data, one.count});
  }
};

/// `lists` must outlive it.
inline hetcclLibraryWork work_of(hetcclLibraryCall call, DataType type, RedOp op,
                                 const Lists& lists, void* stream) {
  hetcclLibraryWork work{};
  work.size = sizeof work;
  work.call = call;
  work.type = static_cast<hetcclDataType_t>(type);
  work.op = static_cast<hetcclRedOp_t>(op);
  work.pieces = lists.pieces.data();
  work.n_pieces = lists.pieces.size();
  work.messages = lists.messages.data();
  work.n_messages = lists.messages.size();
  work.stream = stream;
  work.element_bytes = size_of(type);
  return work;
}

/// Returns whether the library reduces elements of `type` by `op`; false if it throws.
bool has_reduction(const hetcclLibraryAdaptor& library, DataType type, RedOp op);

/// Returns InvalidArgument or Unsupported if the adaptor, with these `capabilities`, cannot do it.
Status check_broadcast(std::span<const Shard> shards, int n_ranks, uint32_t capabilities);
Status check_exchange(std::span<const Transfer> transfers, int n_ranks, int rank,
                      uint32_t capabilities);

}  // namespace hetccl::ccl
