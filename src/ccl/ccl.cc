#include "ccl/ccl.h"

namespace hetccl::ccl {

Status check_ranks(std::span<const Shard> shards, int n_ranks) {
  for (const Shard& shard : shards) {
    if (shard.root < 0 || shard.root >= n_ranks)
      return error(Code::InvalidArgument, "root %d in a cluster of %d ranks", shard.root, n_ranks);
    if (shard.receiver < -1 || shard.receiver >= n_ranks)
      return error(Code::InvalidArgument, "receiver %d in a cluster of %d ranks", shard.receiver,
                   n_ranks);
  }
  return {};
}

}  // namespace hetccl::ccl
