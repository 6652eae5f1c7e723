// One rank's messages of one exchange, and how they are cut into chunks. Pure: no shared memory,
// no tasks.
//
// All messages from one rank to another are one stream of bytes. A rank cuts each of its streams
// into as many pieces as it needs slots, so that every chunk carries a piece for every receiver and
// all pairs of ranks work at once. Its slot begins with a table of parcels, one for each rank,
// which tells the receiver where its piece lies: a receiver need not know what the sender sends to
// others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/divide.h"
#include "ccl/ccl.h"
#include "ccl/host/segment.h"

namespace hetccl::ccl::host {

/// A sender's data for one receiver, in the sender's slot.
struct Parcel {
  uint32_t begin = 0;  ///< in the slot
  uint32_t bytes = 0;
  uint32_t digest = 0;  ///< of the whole stream; valid in an exchange's first chunk alone
};

/// The messages of one exchange from one rank to another, end to end, walked front to back.
class Stream {
 public:
  void clear();
  [[nodiscard]] size_t bytes() const { return bytes_; }
  /// Bytes that `take` has not walked yet.
  [[nodiscard]] size_t left() const { return left_; }
  /// A digest of the messages' sizes in order; both ends compute the same one.
  [[nodiscard]] uint32_t digest() const;

 private:
  friend class Exchange;
  size_t bytes_ = 0, left_ = 0;
  uint64_t digest_ = 0;
  uint32_t last_ = 0;     // payload; the next two are valid while bytes are left
  uint32_t payload_ = 0;  // the one that `take` continues with
  size_t offset_ = 0;     // in that payload
};

class Exchange {
 public:
  /// Keeps its memory from call to call.
  void prepare(std::span<const Transfer> transfers, DataType type, const Geometry& geometry,
               int rank);

  /// Chunks that carry this rank's pieces, at least 1. An exchange has as many chunks as the rank
  /// that needs the most.
  [[nodiscard]] uint64_t n_chunks() const { return n_chunks_; }
  /// Bytes of this rank's slot that a chunk takes at most, behind the table.
  [[nodiscard]] size_t chunk_bytes() const { return chunk_bytes_; }
  /// A digest of each stream out, less one of each stream in: over all ranks they add up to 0 where
  /// every rank receives what the others send to it.
  [[nodiscard]] uint64_t balance() const { return balance_; }
  /// Elements that this rank sends, bytes that it receives.
  [[nodiscard]] size_t sent_count() const { return sent_count_; }
  [[nodiscard]] size_t received_bytes() const { return received_bytes_; }

  /// The streams of this rank to and from `peer`, which may be this rank.
  [[nodiscard]] Stream& to(int peer) { return out_[static_cast<size_t>(peer)]; }
  [[nodiscard]] Stream& from(int peer) { return in_[static_cast<size_t>(peer)]; }
  /// The other ranks to which this one sends bytes, the next rank first; those from which it
  /// receives, the rank before it first. So not all ranks read one slot at the same time.
  [[nodiscard]] std::span<const int> receivers() const { return receivers_; }
  [[nodiscard]] std::span<const int> senders() const { return senders_; }

  /// Bytes of `stream` in chunk `k`.
  [[nodiscard]] size_t piece_bytes(const Stream& stream, uint64_t k) const;
  /// Where a piece begins that has room from `offset` on.
  [[nodiscard]] size_t align(size_t offset) const { return round_up(offset, grain_); }
  /// Where the first piece begins in a slot, behind the table.
  [[nodiscard]] static size_t table_bytes(int n_ranks);

  /// Calls `visit(memory, bytes)` for each block of memory of the stream's next `bytes`.
  template <typename Visit>
  void take(Stream& stream, size_t bytes, Visit&& visit) {
    while (bytes > 0) {
      const Payload& payload = payloads_[stream.payload_];
      const size_t block = std::min(bytes, payload.bytes - stream.offset_);
      visit(payload.data + stream.offset_, block);
      bytes -= block;
      stream.left_ -= block;
      stream.offset_ += block;
      if (stream.offset_ < payload.bytes) continue;
      stream.payload_ = payload.next;
      stream.offset_ = 0;
    }
  }

 private:
  // What a message carries: one block of memory.
  struct Payload {
    std::byte* data;
    size_t bytes;
    uint32_t next;  // of its stream
  };
  void append(Stream& stream, const Transfer& transfer, size_t element);

  std::vector<Payload> payloads_;
  std::vector<Stream> out_, in_;
  std::vector<int> receivers_, senders_;
  size_t grain_ = 1;  // pieces are cut and laid at its multiples
  size_t sent_count_ = 0, received_bytes_ = 0, chunk_bytes_ = 0;
  uint64_t n_chunks_ = 1, balance_ = 0;
};

}  // namespace hetccl::ccl::host
