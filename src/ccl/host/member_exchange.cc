// A Member's part of an exchange: each chunk of a rank's slot is a table of parcels, then the
// parcels.
#include <algorithm>

#include "ccl/host/member.h"

namespace hetccl::ccl::host {

HostCall& Member::open_exchange(std::span<const Transfer> transfers, DataType type) {
  HostCall& operation = take_idle();
  operation.prepare_exchange(transfers, type, {opened_++, number_}, segment_.geometry(), rank_);
  return operation;
}

Parcel* Member::parcels(int rank, uint64_t chunk) const {
  return reinterpret_cast<Parcel*>(segment_.slot(rank, chunk));
}

// The first chunk's table has a parcel for every rank, with the digests that `find_unmatched`
// compares. Later chunks only fill in the receivers' parcels, because no other rank reads its own.
void Member::send_chunk(HostCall& operation, const TaskQueue& queue, size_t& work) {
  Exchange& exchange = operation.exchange;
  const uint64_t k = contributed_ - operation.first_chunk;
  std::byte* slot = segment_.slot(rank_, contributed_);
  Parcel* table = parcels(rank_, contributed_);
  for (int r = 0; k == 0 && r < n_ranks(); ++r) table[r] = {0, 0, exchange.to(r).digest()};
  size_t offset = Exchange::table_bytes(n_ranks()) + operation.place(contributed_);
  copies_.clear();
  for (const int r : exchange.receivers()) {
    Stream& stream = exchange.to(r);
    const size_t bytes = exchange.piece_bytes(stream, k);
    table[r].begin = static_cast<uint32_t>(offset);
    table[r].bytes = static_cast<uint32_t>(bytes);
    exchange.take(stream, bytes, [&](const std::byte* data, size_t block) {
      copies_.push_back({slot + offset, queue.host_address(data), block});
      offset += block;
    });
    offset = exchange.align(offset);
    work += bytes;
  }
  queue.copy(copies_);
}

void Member::take_chunk(HostCall& operation, const TaskQueue& queue, size_t& work) {
  Exchange& exchange = operation.exchange;
  copies_.clear();
  for (const int r : exchange.senders()) {
    Stream& stream = exchange.from(r);
    if (stream.left() == 0) continue;
    const Parcel parcel = parcels(r, reduced_)[rank_];
    if (parcel.bytes > stream.left() ||
        size_t{parcel.begin} + parcel.bytes > segment_.geometry().slot_bytes())
      return fail(hetccl::error(ErrorCode::InternalError,
                                "cluster rank %d sent more to cluster rank %d than its messages", r,
                                rank_));
    const std::byte* from = segment_.slot(r, reduced_) + parcel.begin;
    exchange.take(stream, parcel.bytes, [&](std::byte* data, size_t block) {
      copies_.push_back({queue.host_address(data), from, block});
      from += block;
    });
    work += parcel.bytes;
  }
  take_own(operation, queue, work);
  queue.copy(copies_, caching_of(operation));
}

// Copies a rank's messages to itself directly, without a slot; in place nothing is copied.
void Member::take_own(HostCall& operation, const TaskQueue& queue, size_t& work) {
  Exchange& exchange = operation.exchange;
  Stream& out = exchange.to(rank_);
  const size_t bytes = exchange.piece_bytes(out, reduced_ - operation.first_chunk);
  exchange.take(out, bytes, [&](const std::byte* data, size_t out_block) {
    exchange.take(exchange.from(rank_), out_block, [&](std::byte* to, size_t block) {
      if (to != data) {
        copies_.push_back({queue.host_address(to), queue.host_address(data), block});
      }
      data += block;
    });
  });
  work += bytes;
}

// Called on every rank when the sends and receives of some pair of ranks differ. Each rank checks
// its own messages; the one that finds the difference reports it, and the others wait for that.
void Member::find_unmatched(HostCall& operation) {
  for (int r = 0; r < n_ranks(); ++r) {
    const Parcel parcel = parcels(r, operation.first_chunk)[rank_];
    if (r == rank_ || parcel.digest == operation.exchange.from(r).digest()) continue;
    const std::string call = describe(operation.call);
    return fail(hetccl::error(ErrorCode::InvalidUsage,
                              "the messages of one host cluster do not match: cluster rank %d, in "
                              "%s, receives other messages from cluster rank %d than that sends; "
                              "the n-th send must meet the n-th receive, with the same count",
                              rank_, call.c_str(), r),
                Disagreement{operation.call.number, rank_, r});
  }
}

}  // namespace hetccl::ccl::host
