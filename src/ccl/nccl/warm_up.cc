#include "ccl/nccl/warm_up.h"

#include <algorithm>
#include <vector>

namespace hetccl::ccl::nccl {
namespace {

constexpr DataType kType = DataType::Float32;
constexpr size_t kElement = 4;
// Bytes of all ranks: latency, middle and bandwidth algorithms.
constexpr size_t kSizes[] = {0, size_t{256} << 10, size_t{16} << 20};
// Connections between all pairs of ranks are made ahead in clusters of up to so many.
constexpr int kMaxPairs = 64;

// Memory and a stream, given back at the end: what has not drained by then is aborted first, since
// freeing waits for it.
class Room {
 public:
  Room(Workspace& workspace, NcclCommunicator& communicator)
      : workspace_(workspace), communicator_(communicator) {}
  ~Room() {
    if (!drained) communicator_.abort();
    if (stream != nullptr) workspace_.release_stream(stream);
    if (memory != nullptr) workspace_.free(memory);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  Status reserve(size_t bytes) {
    HETCCL_ASSIGN(stream, workspace_.acquire_stream());
    HETCCL_ASSIGN(memory, workspace_.allocate(bytes));
    return {};
  }
  void* stream = nullptr;
  void* memory = nullptr;
  bool drained = false;

 private:
  Workspace& workspace_;
  NcclCommunicator& communicator_;
};

// A shard for every rank in the first half of `memory`, results in the second.
std::vector<Shard> shards_of(std::byte* memory, size_t half, int n_ranks, size_t count) {
  std::vector<Shard> shards;
  for (int r = 0; r < n_ranks; ++r) {
    const size_t offset = static_cast<size_t>(r) * count * kElement;
    shards.push_back({r, memory + offset, memory + half + offset, count, -1, r > 0});
  }
  return shards;
}

Status run_size(NcclCommunicator& communicator, int n_ranks, std::byte* memory, size_t half,
                size_t count, void* stream) {
  const size_t whole = count * static_cast<size_t>(n_ranks);
  for (const RedOp op : {RedOp::Sum, RedOp::Avg, RedOp::PreMulSum}) {
    HETCCL_TRY(communicator.all_reduce(memory, memory + half, whole, kType, {op}, stream));
  }
  auto shards = shards_of(memory, half, n_ranks, count);
  const Reducer sum{RedOp::Sum};
  for (const bool together : {true, false}) {  // in one call, as a group
    for (Shard& shard : shards) shard.follows = together;
    HETCCL_TRY(communicator.reduce(shards, kType, sum, stream));
    HETCCL_TRY(communicator.broadcast(shards, kType, stream));
  }
  const Shard rooted{0, memory, memory + half, whole};
  HETCCL_TRY(communicator.reduce({&rooted, 1}, kType, sum, stream));
  HETCCL_TRY(communicator.broadcast({&rooted, 1}, kType, stream));
  return communicator.barrier(stream);
}

Status run_pairs(NcclCommunicator& communicator, int n_ranks, std::byte* memory, size_t half,
                 void* stream) {
  if (n_ranks > kMaxPairs) return {};
  std::vector<Shard> shards;
  for (int from = 0; from < n_ranks; ++from) {
    for (int to = 0; to < n_ranks; ++to) {
      std::byte* received = memory + half + static_cast<size_t>(from) * kElement;
      shards.push_back({from, memory + static_cast<size_t>(to) * kElement, received, 1, to});
    }
  }
  return communicator.broadcast(shards, kType, stream);
}

}  // namespace

Status warm_up(NcclCommunicator& communicator, int n_ranks, int rank, Workspace& workspace,
               const std::function<bool()>& give_up) {
  const auto ranks = static_cast<size_t>(n_ranks);
  const size_t half = kSizes[2] + ranks * kElement;
  Room room(workspace, communicator);
  HETCCL_TRY(room.reserve(2 * half));
  auto* memory = static_cast<std::byte*>(room.memory);
  for (const size_t bytes : kSizes) {
    if (give_up()) return error(Code::Aborted, "rank %d: nobody waits for it any more", rank);
    const size_t count = std::max(bytes / kElement / ranks, size_t{1});
    HETCCL_TRY(run_size(communicator, n_ranks, memory, half, count, room.stream));
  }
  HETCCL_TRY(run_pairs(communicator, n_ranks, memory, half, room.stream));
  const auto stop = [&] { return give_up() || !communicator.async_error().ok(); };
  room.drained = workspace.drain(room.stream, stop);
  HETCCL_TRY(communicator.async_error());
  if (!room.drained) return error(Code::Aborted, "rank %d: nobody waits for it any more", rank);
  return {};
}

}  // namespace hetccl::ccl::nccl
