#include "ccl/adaptor/work.h"

namespace hetccl::ccl {

bool has_reduction(const hetcclLibraryAdaptor& library, DataType type, RedOp op) {
  try {
    return library.reduces(static_cast<hetcclDataType_t>(type), static_cast<hetcclRedOp_t>(op)) ==
           1;
  } catch (...) {
    return false;
  }
}

Status check_broadcast(std::span<const Shard> shards, int n_ranks, uint32_t capabilities) {
  HETCCL_TRY(check_ranks(shards, n_ranks));
  for (const Shard& shard : shards) {
    if (shard.receiver >= 0 && (capabilities & HETCCL_LIBRARY_SENDS) == 0)
      return error(ErrorCode::Unsupported, "the adaptor cannot broadcast to a single rank");
  }
  return {};
}

Status check_exchange(std::span<const Transfer> transfers, int n_ranks, int rank,
                      uint32_t capabilities) {
  if ((capabilities & HETCCL_LIBRARY_EXCHANGES) == 0)
    return error(ErrorCode::Unsupported, "the adaptor exchanges no messages");
  return check_transfers(transfers, n_ranks, rank);
}

}  // namespace hetccl::ccl
