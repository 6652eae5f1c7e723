#include "ccl/nccl/warm_up.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace hetccl::ccl::nccl {
namespace {

constexpr DataType kType = DataType::Float32;
constexpr size_t kElement = 4;
// Bytes over all ranks that select latency, middle and bandwidth algorithms.
constexpr size_t kSizes[] = {0, size_t{256} << 10, size_t{16} << 20};
// Messages have one algorithm.
constexpr size_t kSizesOfMessages = 2;
// In clusters of up to this many ranks, connections between all pairs are made in advance.
constexpr int kMaxPairs = 64;

Status no_waiter() {
  return error(ErrorCode::Aborted, "nobody waits for it any more");
}

}  // namespace

WarmUp::~WarmUp() {
  if (stream_ != nullptr) workspace_.release_stream(stream_);
  if (memory_ != nullptr) workspace_.free(memory_);
}

std::span<const size_t> WarmUp::sizes() const {
  const std::span<const size_t> all(kSizes);
  return calls_ == Calls::All ? all : all.first(kSizesOfMessages);
}

Status WarmUp::reserve(int n_ranks) {
  half_ = sizes().back() + static_cast<size_t>(n_ranks) * kElement;
  HETCCL_ASSIGN(stream_, workspace_.acquire_stream());
  HETCCL_ASSIGN(void* memory, workspace_.allocate(2 * half_));
  memory_ = static_cast<std::byte*>(memory);
  return {};
}

Status WarmUp::run(NcclCommunicator& communicator, int n_ranks,
                   const std::function<bool()>& give_up, const std::function<void()>& enqueued) {
  Status status = enqueue(communicator, n_ranks, give_up);
  enqueued();
  const auto stop = [&] { return give_up() || !communicator.async_error().ok(); };
  const bool drained = status.ok() && workspace_.drain(stream_, stop);
  if (status.ok()) status = communicator.async_error();
  if (status.ok() && !drained) status = no_waiter();
  if (status.ok()) return status;
  // Work that has not drained may write to it until the abort is complete.
  communicator.adopt(std::exchange(memory_, nullptr));
  communicator.abort();
  return status;
}

Status WarmUp::enqueue(NcclCommunicator& communicator, int n_ranks,
                       const std::function<bool()>& give_up) {
  for (const size_t bytes : sizes()) {
    if (give_up()) return no_waiter();
    const size_t count = bytes / kElement / static_cast<size_t>(n_ranks);
    if (calls_ == Calls::All)
      HETCCL_TRY(enqueue_size(communicator, n_ranks, std::max(count, size_t{1})));
    HETCCL_TRY(enqueue_pairs(communicator, n_ranks, std::max(count, size_t{1})));
  }
  return {};
}

Status WarmUp::enqueue_size(NcclCommunicator& communicator, int n_ranks, size_t count) {
  std::byte* results = memory_ + half_;
  const size_t whole = count * static_cast<size_t>(n_ranks);
  for (const RedOp op : {RedOp::Sum, RedOp::Avg, RedOp::PreMulSum}) {
    if (!communicator.has(op)) continue;
    HETCCL_TRY(communicator.all_reduce(memory_, results, whole, kType, {op}, stream_));
  }
  std::vector<Shard> shards;
  for (int r = 0; r < n_ranks; ++r) {
    const size_t offset = static_cast<size_t>(r) * count * kElement;
    shards.push_back({r, memory_ + offset, results + offset, count, -1});
  }
  const Reducer sum{RedOp::Sum};
  for (const bool together : {true, false}) {  // first in one call, as a group
    for (Shard& shard : shards) shard.follows = together;
    HETCCL_TRY(communicator.reduce(shards, kType, sum, stream_));
    HETCCL_TRY(communicator.broadcast(shards, kType, stream_));
  }
  const Shard rooted{0, memory_, results, whole};
  HETCCL_TRY(communicator.reduce({&rooted, 1}, kType, sum, stream_));
  HETCCL_TRY(communicator.broadcast({&rooted, 1}, kType, stream_));
  return communicator.barrier(stream_);
}

// Makes NCCL connect pairs of ranks by a first message to each rank, this one included.
Status WarmUp::enqueue_pairs(NcclCommunicator& communicator, int n_ranks, size_t count) {
  if (n_ranks > kMaxPairs) return {};
  std::vector<Transfer> transfers;
  for (int r = 0; r < n_ranks; ++r) {
    std::byte* data = memory_ + static_cast<size_t>(r) * count * kElement;
    transfers.push_back({r, true, data, count});
    transfers.push_back({r, false, data + half_, count});
  }
  return communicator.exchange(transfers, kType, stream_);
}

}  // namespace hetccl::ccl::nccl
