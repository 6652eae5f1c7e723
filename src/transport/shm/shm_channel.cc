#include "transport/shm/shm_channel.h"

#include <algorithm>

namespace hetccl::transport::shm {

namespace {

// Small enough that the reader starts on one piece while the writer continues with the next.
constexpr size_t kPieceBytes = 64 << 10;
// The piece size for a crew, and the least size for which several threads pay off.
constexpr size_t kSharedPieceBytes = 256 << 10;
static_assert(kSharedPieceBytes + kHeaderBytes <= kRingBytes / 2);
// The bytes that a post may move before it returns.
constexpr size_t kPostBudget = 1 << 20;

void spend(size_t* budget, size_t bytes) {
  *budget -= std::min(*budget, bytes);
}

// Returns how much of `wanted` to copy now, if `there` bytes are available. A crew copies only
// whole pieces. That cannot deadlock: if half the ring is empty the writer has room for a piece,
// otherwise the reader has one to read.
size_t movable_bytes(size_t wanted, size_t there) {
  return there < wanted && wanted > kPieceBytes ? 0 : std::min(wanted, there);
}

// Passes `bytes` of `extent` to `copy`, one contiguous part after the other.
template <typename CopyPart>
void move(Extent& extent, size_t bytes, const CopyPart& copy) {
  while (bytes > 0) {
    const auto part = extent.front().first(std::min(bytes, extent.front().size()));
    copy(part);
    extent.advance(part.size());
    bytes -= part.size();
  }
}

}  // namespace

size_t Channels::piece_of(size_t left) const {
  const bool shared = left >= kSharedPieceBytes && crew != nullptr && crew->threads() > 1;
  return shared ? kSharedPieceBytes : std::min(left, kPieceBytes);
}

ShmChannel::ShmChannel(int peer, int side, SharedMemory memory, RemoteWaker waker,
                       std::shared_ptr<Channels> channels)
    : peer_(peer),
      side_(side),
      memory_(std::move(memory)),
      waker_(std::move(waker)),
      channels_(std::move(channels)),
      out_(segment().rings[side]),
      in_(segment().rings[1 - side]) {
  std::lock_guard lock(channels_->mutex);
  channels_->all.push_back(this);
}

ShmChannel::~ShmChannel() {
  close();
}

void ShmChannel::close() {
  std::lock_guard lock(channels_->mutex);
  if (!open_) return;
  open_ = false;
  std::erase(channels_->all, this);
  if (status_.ok())
    status_ = error(ErrorCode::Aborted, "the channel to rank %d was closed by this rank", peer_);
  sends_.clear();
  recvs_.clear();
  segment().sides[side_].closed.store(1);
  ring_if_asleep();
}

void ShmChannel::post_send(const Parcel& transfer) {
  if (!status_.ok()) return;
  sends_.push(transfer);
  size_t budget = kPostBudget;
  if (sends_.size() == 1) send(&budget);
}

void ShmChannel::post_recv(const Parcel& transfer) {
  if (!status_.ok()) return;
  recvs_.push(transfer);
  size_t budget = kPostBudget;
  if (recvs_.size() == 1) receive(&budget);
}

// Bytes that are no header become an error when a receive is posted.
std::optional<MessageInfo> ShmChannel::incoming() {
  if (!status_.ok() || !recvs_.empty() || in_.available(kHeaderBytes) < kHeaderBytes) return {};
  uint8_t bytes[kHeaderBytes];
  in_.peek(bytes, kHeaderBytes);
  auto header = decode(bytes);
  return header.ok() ? std::optional(header->info) : std::nullopt;
}

bool ShmChannel::progress(size_t* budget) {
  if (!status_.ok() || *budget == 0) return false;
  // Read this before the ring, so that data written before the peer closed is delivered first.
  const bool peer_closed = segment().sides[1 - side_].closed.load() != 0;
  bool moved = !sends_.empty() && send(budget);
  if (!recvs_.empty()) moved |= receive(budget);
  if (peer_closed && status_.ok() && !moved) {
    const size_t left = in_.available(kHeaderBytes);
    // With no receive posted, a buffered whole header may belong to a message that is still wanted.
    // Less than a header will never be completed.
    const bool cut = !recvs_.empty() || left < kHeaderBytes;
    if (cut)
      fail(error(ErrorCode::RemoteError, "connection to rank %d closed (by that rank)", peer_));
  }
  return moved;
}

bool ShmChannel::send(size_t* budget) {
  bool moved = false;
  while (!sends_.empty() && *budget > 0) {
    const Parcel& transfer = sends_.front();
    size_t bytes = 0;
    if (!header_sent_) {
      if (out_.room(kHeaderBytes) < kHeaderBytes) break;
      uint8_t header[kHeaderBytes];
      encode({sends_completed_, 0, transfer.bytes, transfer.bytes, transfer.info}, header);
      out_.write(header, kHeaderBytes);
      header_sent_ = true;
      sending_ = Extent(transfer, 0, transfer.bytes);
      bytes = kHeaderBytes;
    }
    const size_t wanted = channels_->piece_of(sending_.bytes());
    const size_t piece = movable_bytes(wanted, out_.room(wanted));
    move(sending_, piece, [&](std::span<std::byte> part) {
      out_.write(part.data(), part.size(), channels_->crew.get());
    });
    bytes += piece;
    if (bytes == 0) break;
    out_.publish();
    ring_if_asleep();
    moved = true;
    channels_->bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
    spend(budget, bytes);
    if (sending_.bytes() > 0) continue;
    sends_.pop();
    ++sends_completed_;
    header_sent_ = false;
  }
  return moved;
}

bool ShmChannel::receive(size_t* budget) {
  bool moved = false;
  while (!recvs_.empty() && *budget > 0) {
    if (!header_seen_) {
      if (in_.available(kHeaderBytes) < kHeaderBytes) break;
      if (!begin_message()) return true;
      moved = true;
    }
    const size_t wanted = channels_->piece_of(receiving_.bytes());
    const size_t piece = movable_bytes(wanted, in_.available(wanted));
    if (!in_.sane()) {
      fail(error(ErrorCode::RemoteError, "rank %d broke the ring of its channel", peer_));
      return true;
    }
    if (piece == 0 && wanted > 0) break;
    move(receiving_, piece, [&](std::span<std::byte> part) {
      in_.read(part.data(), part.size(), channels_->crew.get());
    });
    in_.publish();
    ring_if_asleep();
    moved = true;
    spend(budget, piece + 1);
    if (receiving_.bytes() == 0) complete_message();
  }
  return moved;
}

bool ShmChannel::begin_message() {
  // Copy the header out of the ring: the other process could change it after the check.
  uint8_t bytes[kHeaderBytes];
  in_.read(bytes, kHeaderBytes);
  auto header = decode(bytes);
  Status status = !in_.sane()   ? error(ErrorCode::RemoteError, "it broke the ring of its channel")
                  : header.ok() ? check(*header, recvs_.front(), peer_)
                                : header.status();
  if (status.ok() && (header->number != recvs_completed_ || header->bytes != header->total))
    status = error(ErrorCode::RemoteError, "its messages are out of order");
  if (!status.ok())
    fail(status.code() == ErrorCode::InvalidUsage ? status
                                                  : status.with(format("from rank %d", peer_)));
  header_seen_ = status.ok();
  if (header_seen_) receiving_ = Extent(recvs_.front(), 0, recvs_.front().bytes);
  return header_seen_;
}

void ShmChannel::complete_message() {
  recvs_.pop();
  ++recvs_completed_;
  header_seen_ = false;
}

// Counters, `closed` and `sleeping` are sequentially consistent: either the sleeper sees what was
// published before this, or this sees that it sleeps.
void ShmChannel::ring_if_asleep() {
  std::atomic<uint32_t>& sleeping = segment().sides[1 - side_].sleeping;
  if (sleeping.load() != 0 && sleeping.exchange(0) != 0) waker_.ring();
}

void ShmChannel::set_sleeping(bool sleeping) {
  segment().sides[side_].sleeping.store(sleeping ? 1 : 0);
}

void ShmChannel::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

}  // namespace hetccl::transport::shm
