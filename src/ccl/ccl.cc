#include "ccl/ccl.h"

#include <algorithm>

namespace hetccl::ccl {

Status check_ranks(std::span<const Shard> shards, int n_ranks) {
  for (const Shard& shard : shards) {
    if (shard.root < 0 || shard.root >= n_ranks)
      return error(ErrorCode::InvalidArgument, "root %d in a cluster of %d ranks", shard.root,
                   n_ranks);
    if (shard.receiver < -1 || shard.receiver >= n_ranks)
      return error(ErrorCode::InvalidArgument, "receiver %d in a cluster of %d ranks",
                   shard.receiver, n_ranks);
  }
  return {};
}

// Matches a rank's n-th send to itself with its n-th receive from itself.
Status check_transfers(std::span<const Transfer> transfers, int n_ranks, int rank) {
  for (const Transfer& transfer : transfers) {
    if (transfer.peer < 0 || transfer.peer >= n_ranks)
      return error(ErrorCode::InvalidArgument, "peer %d in a cluster of %d ranks", transfer.peer,
                   n_ranks);
  }
  const auto next = [&](size_t i, bool send) {
    const auto found = [&](const Transfer& t) {
      return t.peer == rank && t.send == send && t.count > 0;
    };
    return static_cast<size_t>(
        std::find_if(transfers.begin() + static_cast<ptrdiff_t>(i), transfers.end(), found) -
        transfers.begin());
  };
  size_t sent = next(0, true), received = next(0, false);
  while (sent < transfers.size() && received < transfers.size()) {
    if (transfers[sent].count != transfers[received].count)
      return error(ErrorCode::InvalidArgument,
                   "rank %d of the cluster sends %zu elements to itself, and receives %zu", rank,
                   transfers[sent].count, transfers[received].count);
    sent = next(sent + 1, true);
    received = next(received + 1, false);
  }
  if (sent == received) return {};  // both lists have ended
  return error(ErrorCode::InvalidArgument,
               "rank %d of the cluster sends other messages to itself than it receives", rank);
}

Status Communicator::exchange(std::span<const Transfer> /*transfers*/, DataType /*type*/,
                              void* /*stream*/) {
  return error(ErrorCode::Unsupported, "the cluster's library has no exchange of messages");
}

Result<std::unique_ptr<Communicator>> Library::init_with_blocks(const UniqueId& /*id*/,
                                                                int /*n_ranks*/, int /*rank*/,
                                                                const Blocks& /*blocks*/,
                                                                const WaitLimit& /*limit*/) {
  return error(ErrorCode::Unsupported,
               "the library \"%s\" cannot be told how many thread blocks to take: leave min_ctas "
               "and max_ctas 0 on this rank",
               name().c_str());
}

Result<std::unique_ptr<PendingPair>> Library::begin_pair(const PairSeat& /*seat*/, Waker* /*waker*/,
                                                         const WaitLimit& /*limit*/,
                                                         std::function<void()> /*wake*/) {
  return error(ErrorCode::Unsupported, "the cluster's library makes no communicators for pairs");
}

}  // namespace hetccl::ccl
