#include "ccl/host/operation.h"

#include <algorithm>

#include "host/task_queue.h"

namespace hetccl::ccl::host {

namespace {

// Below this, the second synchronisation costs more than reducing everything on every rank.
constexpr size_t kOneStageBytes = size_t{32} << 10;
// A few lines cost less if the others' caches hold them than if none does.
constexpr size_t kLeastByTurns = size_t{2} << 10;
// The most room that rounding to cache lines and whole elements takes per piece.
constexpr size_t kPieceOverhead = 128;

// FNV-1a over 64-bit words.
uint64_t mix(uint64_t digest, uint64_t word) {
  return (digest ^ word) * 0x100000001b3ULL;
}

}  // namespace

size_t HostCall::max_shards(const Geometry& geometry) {
  return geometry.slot_bytes() / 2 / kPieceOverhead;
}

void HostCall::prepare(Kind kind, std::span<const Shard> list, DataType type, const Reducer& how,
                       const CallNumbers& numbers, const Geometry& geometry,
                       std::vector<size_t>& scratch) {
  shards.assign(list.begin(), list.end());
  factor = how.factor;
  started = false;
  const auto ranks = static_cast<size_t>(geometry.n_ranks);
  scratch.assign(ranks, 0);
  size_t total = 0;
  uint64_t digest = 0xcbf29ce484222325ULL;
  for (const Shard& shard : shards) {
    digest = mix(mix(digest, static_cast<uint64_t>(shard.root)), shard.count);
    digest = mix(digest, static_cast<uint64_t>(shard.receiver));
    total += shard.count;
    scratch[static_cast<size_t>(shard.root)] += shard.count * size_of(type);
  }
  call = {numbers.sequence,
          numbers.operation,
          total,
          digest,
          static_cast<uint32_t>(shards.size()),
          kind,
          type,
          how.op};

  // A slot holds one piece of every shard; in a broadcast, of every shard whose root is its rank.
  const size_t most_at_one_root = *std::max_element(scratch.begin(), scratch.end());
  const size_t overhead = shards.size() * kPieceOverhead, most = geometry.slot_bytes() - overhead;
  const size_t bytes = total * size_of(type);
  const size_t of_slots = kind == Kind::Broadcast ? most_at_one_root : bytes;
  n_chunks = std::max<uint64_t>(1, divide_up(of_slots, most));
  two_stage = kind == Kind::AllReduce && ranks > 1 && bytes * (ranks - 1) > kOneStageBytes;
  if (kind == Kind::Reduce)  // its root reads every rank's piece
    n_chunks = std::max(
        n_chunks, divide_up(most_at_one_root, TaskQueue::kPieceBytes *
                                                  static_cast<size_t>(geometry.threads) / ranks));
  take_turns(geometry.slot_bytes(), divide_up(of_slots, n_chunks) + overhead);
}

void HostCall::prepare_exchange(std::span<const Transfer> transfers, DataType type,
                                const CallNumbers& numbers, const Geometry& geometry, int rank) {
  shards.clear();
  factor = {};
  started = two_stage = false;
  exchange.prepare(transfers, type, geometry, rank);
  take_turns(geometry.slot_bytes() - Exchange::table_bytes(geometry.n_ranks),
             exchange.chunk_bytes());
  n_chunks = exchange.n_chunks();
  call = {.sequence = numbers.sequence,
          .number = numbers.operation,
          .count = exchange.sent_count(),
          .n_shards = static_cast<uint32_t>(transfers.size()),
          .kind = Kind::Exchange,
          .type = type};
}

void HostCall::take_turns(size_t slot_bytes, size_t chunk_bytes) {
  room = round_up(std::max(chunk_bytes, kLeastByTurns), kPairOfLines);
  places = chunk_bytes < kLeastByTurns ? 1 : std::max<uint64_t>(1, slot_bytes / room);
}

Range HostCall::piece(size_t count, uint64_t k) const {
  const size_t each = count / n_chunks, more = count % n_chunks;
  const auto begin = [&](uint64_t i) { return each * i + std::min<uint64_t>(i, more); };
  return {begin(k), begin(k + 1)};
}

// Use whole cache lines, so that two ranks never write the same one.
Range HostCall::segment(size_t count, int rank, int n_ranks) const {
  const size_t line = 64 / element();
  const size_t ranks = static_cast<size_t>(n_ranks), r = static_cast<size_t>(rank);
  const size_t each = round_up(divide_up(count, ranks), line);
  return {std::min(count, each * r), std::min(count, each * (r + 1))};
}

}  // namespace hetccl::ccl::host
