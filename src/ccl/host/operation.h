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

/// A call's index among the communicator's calls, and the number of the caller's operation.
struct CallNumbers {
  uint64_t sequence = 0;
  uint64_t operation = 0;
};

/// Every shard is cut into `n_chunks` pieces, and chunk k carries piece k of each, so that all
/// roots work at once.
struct HostCall {
  Called call;
  Factor factor;              ///< this rank's factor, for PreMulSum
  std::vector<Shard> shards;  ///< all_reduce: one, without a root; exchange: none
  Exchange exchange;          ///< only for an exchange
  /// Exchange: this rank's own count, until the others' descriptors tell the largest.
  uint64_t n_chunks = 1;
  /// All-reduce of a large message: every rank reduces a segment of each chunk, publishes it in its
  /// slot, and reads the others'. For small ones every rank reduces all contributions.
  bool two_stage = false;

  /// Chunks rotate over this many places of a slot, of `room` bytes each: by the time a rank writes
  /// a place again, it has left the others' caches. Exchange: places follow the slot's table.
  uint64_t places = 1;
  size_t room = 0;

  bool started = false;      ///< set by its task
  uint64_t first_chunk = 0;  ///< valid once started

  /// Returns how many shards one operation may have: a slot needs room for a piece of each.
  static size_t max_shards(const Geometry& geometry);

  /// Sets all members above. `scratch` keeps its memory from call to call.
  void prepare(Kind kind, std::span<const Shard> list, DataType type, const Reducer& how,
               const CallNumbers& numbers, const Geometry& geometry, std::vector<size_t>& scratch);

  /// Prepares an exchange of `rank`.
  void prepare_exchange(std::span<const Transfer> transfers, DataType type,
                        const CallNumbers& numbers, const Geometry& geometry, int rank);

  /// Returns where a chunk begins in its slot.
  [[nodiscard]] size_t place(uint64_t chunk) const {
    return places == 1 ? 0 : chunk / kDepth % places * room;
  }
  /// Sets `places` and `room` from a slot's bytes and the most bytes of a chunk.
  void take_turns(size_t slot_bytes, size_t chunk_bytes);
  /// Returns the number after its last chunk.
  [[nodiscard]] uint64_t end() const { return first_chunk + n_chunks; }
  /// Returns the bytes of its results on any rank; exchange: on this rank.
  [[nodiscard]] size_t result_bytes() const {
    return call.kind == Kind::Exchange ? exchange.received_bytes() : call.count * element();
  }
  [[nodiscard]] size_t element() const { return size_of(call.type); }
  /// Returns piece `k` of a shard of `count` elements.
  [[nodiscard]] Range piece(size_t count, uint64_t k) const;
  /// Returns the elements that `rank` reduces, relative to a chunk of `count`.
  [[nodiscard]] Range segment(size_t count, int rank, int n_ranks) const;
  /// Returns the bytes that a piece takes in a slot.
  [[nodiscard]] size_t slot_bytes(const Range& range) const {
    return round_up(range.count() * element(), 64);
  }
};

}  // namespace hetccl::ccl::host
