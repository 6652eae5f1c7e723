#include "ccl/host/exchange.h"

#include <algorithm>

namespace hetccl::ccl::host {

namespace {

constexpr size_t kLine = 64;
// Up to this many ranks, pieces are whole cache lines. With more, a slot is too small to round up
// every receiver's piece.
constexpr int kMostAligned = 256;
// FNV-1a, over 64-bit words.
constexpr uint64_t kDigestBasis = 0xcbf29ce484222325ULL, kDigestPrime = 0x100000001b3ULL;

// Digests the stream between two ranks. Uses SplitMix64's finalizer, because sums of digests are
// compared.
uint64_t weigh(int from, int to, uint32_t digest) {
  const auto ranks = static_cast<uint64_t>(from) << 16 | static_cast<uint64_t>(to);
  uint64_t word = (ranks << 32 | digest) + 0x9e3779b97f4a7c15ULL;
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ word >> 27) * 0x94d049bb133111ebULL;
  return word ^ word >> 31;
}

}  // namespace

void Stream::clear() {
  *this = Stream();
}

uint32_t Stream::digest() const {
  return static_cast<uint32_t>(digest_ ^ digest_ >> 32);
}

size_t Exchange::table_bytes(int n_ranks) {
  return round_up(static_cast<size_t>(n_ranks) * sizeof(Parcel), kLine);
}

void Exchange::append(Stream& stream, const Transfer& transfer, size_t element) {
  const auto index = static_cast<uint32_t>(payloads_.size());
  payloads_.push_back({static_cast<std::byte*>(transfer.data), transfer.count * element, 0});
  if (stream.bytes_ == 0) {
    stream.payload_ = index;
    stream.digest_ = kDigestBasis;
  } else {
    payloads_[stream.last_].next = index;
  }
  stream.last_ = index;
  stream.bytes_ += transfer.count * element;
  stream.left_ = stream.bytes_;
  stream.digest_ = (stream.digest_ ^ transfer.count) * kDigestPrime;
}

void Exchange::prepare(std::span<const Transfer> transfers, DataType type, const Geometry& geometry,
                       int rank) {
  const int n = geometry.n_ranks;
  for (std::vector<Stream>* streams : {&out_, &in_}) {
    streams->resize(static_cast<size_t>(n));
    for (Stream& stream : *streams) stream.clear();
  }
  payloads_.clear();
  sent_count_ = received_bytes_ = 0;
  for (const Transfer& transfer : transfers) {
    if (transfer.count == 0) continue;
    append(transfer.send ? to(transfer.peer) : from(transfer.peer), transfer, size_of(type));
    if (transfer.send)
      sent_count_ += transfer.count;
    else
      received_bytes_ += transfer.count * size_of(type);
  }

  receivers_.clear();
  senders_.clear();
  for (int i = 1; i < n; ++i) {
    const int next = (rank + i) % n, previous = (rank + n - i) % n;
    if (to(next).bytes() > 0) receivers_.push_back(next);
    if (from(previous).bytes() > 0) senders_.push_back(previous);
  }
  balance_ = 0;
  for (const int r : receivers_) balance_ += weigh(rank, r, to(r).digest());
  for (const int r : senders_) balance_ -= weigh(r, rank, from(r).digest());
  // A piece is up to two grains longer than its share of the stream: one for the cut, one for the
  // end.
  grain_ = n <= kMostAligned ? kLine : 1;
  const size_t overhead = receivers_.size() * 2 * grain_;
  const size_t room = geometry.slot_bytes() - table_bytes(n) - overhead;
  const size_t kept = to(rank).bytes();
  const size_t away = sent_count_ * size_of(type) - kept;
  n_chunks_ =
      std::max({uint64_t{1}, divide_up(away, room), divide_up(kept, geometry.slot_bytes())});
  chunk_bytes_ = divide_up(away, n_chunks_) + overhead;
}

size_t Exchange::piece_bytes(const Stream& stream, uint64_t k) const {
  if (k >= n_chunks_) return 0;
  const size_t grains = divide_up(stream.bytes(), grain_);
  const size_t each = grains / n_chunks_, more = grains % n_chunks_;
  const auto begin = [&](uint64_t i) {
    return std::min(stream.bytes(), (each * i + std::min<size_t>(i, more)) * grain_);
  };
  return begin(k + 1) - begin(k);
}

}  // namespace hetccl::ccl::host
