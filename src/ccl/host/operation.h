// One enqueued collective and how it is cut into chunks. Pure: no shared memory, no tasks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/divide.h"
#include "ccl/ccl.h"
#include "ccl/host/exchange.h"
#include "ccl/host/segment.h"

namespace hetccl::ccl::host {

/// Elements [begin, end).
struct Range {
  size_t begin, end;
  [[nodiscard]] size_t count() const { return end - begin; }
};

/// Of one call: its place among the communicator's calls, and the caller's operation.
struct CallNumbers {
  uint64_t sequence = 0;
  uint64_t operation = 0;
};

/// Every shard is cut into `n_chunks` pieces and chunk k carries piece k of each, so that all roots
/// work at once.
struct HostCall {
  Called call;
  Factor factor;              ///< of this rank, for PreMulSum
  std::vector<Shard> shards;  ///< all_reduce: one, whose root means nothing; exchange: none
  Exchange exchange;          ///< exchange alone
  /// Exchange: this rank's own, until the others' descriptors tell what the longest takes.
  uint64_t n_chunks = 1;
  /// all_reduce of a large message: every rank reduces a segment of each chunk, publishes it in its
  /// slot, and reads the others'. Small ones are reduced by every rank from all contributions.
  bool two_stage = false;

  /// A chunk takes one of so many places of its slot, of `room` bytes, by turns: what a rank writes
  /// has left the others' caches since it last wrote there. Exchange: behind the slot's table.
  uint64_t places = 1;
  size_t room = 0;

  bool started = false;      ///< by its task
  uint64_t first_chunk = 0;  ///< valid once started

  /// Shards that one operation may have: a slot has room for a piece of each.
  static size_t max_shards(const Geometry& geometry);

  /// Sets all of the above. `scratch` keeps its memory from call to call.
  void prepare(Kind kind, std::span<const Shard> list, DataType type, const Reducer& how,
               const CallNumbers& numbers, const Geometry& geometry, std::vector<size_t>& scratch);

  /// The same for an exchange of `rank`.
  void prepare_exchange(std::span<const Transfer> transfers, DataType type,
                        const CallNumbers& numbers, const Geometry& geometry, int rank);

  /// Where in its slot a chunk begins.
  [[nodiscard]] size_t place(uint64_t chunk) const {
    return places == 1 ? 0 : chunk / kDepth % places * room;
  }
  /// Sets the two from the bytes of a slot, and what of it a chunk takes at most.
  void take_turns(size_t slot_bytes, size_t chunk_bytes);
  /// Behind its last chunk.
  [[nodiscard]] uint64_t end() const { return first_chunk + n_chunks; }
  /// Bytes of its results, of any rank; exchange: of this one.
  [[nodiscard]] size_t result_bytes() const {
    return call.kind == Kind::Exchange ? exchange.received_bytes() : call.count * element();
  }
  [[nodiscard]] size_t element() const { return size_of(call.type); }
  /// Piece `k` of a shard of `count` elements.
  [[nodiscard]] Range piece(size_t count, uint64_t k) const;
  /// The elements of a chunk of `count` that `rank` reduces, relative to the chunk.
  [[nodiscard]] Range segment(size_t count, int rank, int n_ranks) const;
  /// Bytes that a piece takes in a slot.
  [[nodiscard]] size_t slot_bytes(const Range& range) const {
    return round_up(range.count() * element(), 64);
  }
};

}  // namespace hetccl::ccl::host
