// One rank's messages of an exchange, and how they are cut into chunks. Pure: no shared memory, no
// tasks.
//
// All messages from one rank to another form one stream of bytes. A rank cuts each of its streams
// into as many pieces as it has chunks, so that every chunk carries a piece for every receiver and
// all pairs of ranks work at once. A slot begins with a table of parcels, one for each rank, which
// tells the receiver where its piece is. So a receiver need not know what the sender sends to
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
  uint32_t begin = 0;  ///< offset in the slot
  uint32_t bytes = 0;
  uint32_t digest = 0;  ///< of the whole stream; only valid in an exchange's first chunk
};

/// The messages from one rank to another in an exchange, concatenated and walked front to back.
class Stream {
 public:
  void clear();
  [[nodiscard]] size_t bytes() const { return bytes_; }
  /// Returns the bytes that `take` has not walked yet.
  [[nodiscard]] size_t left() const { return left_; }
  /// Returns a digest of the messages' sizes in order, equal at both ends.
  [[nodiscard]] uint32_t digest() const;

 private:
  friend class Exchange;
  size_t bytes_ = 0, left_ = 0;
  uint64_t digest_ = 0;
  uint32_t last_ = 0;     // last payload; the next two are valid while bytes are left
  uint32_t payload_ = 0;  // payload where `take` continues
  size_t offset_ = 0;     // offset in that payload
};

class Exchange {
 public:
  /// Reuses its memory from call to call.
  void prepare(std::span<const Transfer> transfers, DataType type, const Geometry& geometry,
               int rank);

  /// Returns the chunks that this rank's pieces need, at least 1. An exchange has as many chunks as
  /// the rank that needs most.
  [[nodiscard]] uint64_t n_chunks() const { return n_chunks_; }
  /// Returns the most bytes that a chunk takes in this rank's slot, without the table.
  [[nodiscard]] size_t chunk_bytes() const { return chunk_bytes_; }
  /// Returns the digests of the streams out minus those of the streams in. Over all ranks the sum
  /// is 0 if every rank receives what the others send to it.
  [[nodiscard]] uint64_t balance() const { return balance_; }
  /// Return the elements that this rank sends, and the bytes that it receives.
  [[nodiscard]] size_t sent_count() const { return sent_count_; }
  [[nodiscard]] size_t received_bytes() const { return received_bytes_; }

  /// Return this rank's streams to and from `peer`, which may be this rank.
  [[nodiscard]] Stream& to(int peer) { return out_[static_cast<size_t>(peer)]; }
  [[nodiscard]] Stream& from(int peer) { return in_[static_cast<size_t>(peer)]; }
  /// Return the ranks to which this one sends bytes, starting with the next rank, and those from
  /// which it receives, starting with the previous rank. The rotation keeps ranks from reading the
  /// same slot at once.
  [[nodiscard]] std::span<const int> receivers() const { return receivers_; }
  [[nodiscard]] std::span<const int> senders() const { return senders_; }

  /// Returns the bytes of `stream` in chunk `k`.
  [[nodiscard]] size_t piece_bytes(const Stream& stream, uint64_t k) const;
  /// Returns the start of a piece with room from `offset` on.
  [[nodiscard]] size_t align(size_t offset) const { return round_up(offset, grain_); }
  /// Returns the start of the first piece in a slot, after the table.
  [[nodiscard]] static size_t table_bytes(int n_ranks);

  /// Calls `visit(memory, bytes)` for each block of memory in the stream's next `bytes`.
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
  // A message's data: one block of memory.
  struct Payload {
    std::byte* data;
    size_t bytes;
    uint32_t next;  // in its stream
  };
  void append(Stream& stream, const Transfer& transfer, size_t element);

  std::vector<Payload> payloads_;
  std::vector<Stream> out_, in_;
  std::vector<int> receivers_, senders_;
  size_t grain_ = 1;  // cuts and offsets of pieces are multiples of it
  size_t sent_count_ = 0, received_bytes_ = 0, chunk_bytes_ = 0;
  uint64_t n_chunks_ = 1, balance_ = 0;
};

}  // namespace hetccl::ccl::host
