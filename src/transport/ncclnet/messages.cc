// How a channel moves messages: headers and short messages over the control connection, long
// messages chunk by chunk through the plug-in.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/ncclnet/channel.h"

namespace hetccl::transport::ncclnet {

void NetChannel::post_send(const Parcel& transfer) {
  const std::lock_guard lock(core_->mutex);
  if (ended()) return;
  sends_.push({transfer, core_->find(transfer)});
  send_messages();
  complete_sends();
}

void NetChannel::post_recv(const Parcel& transfer) {
  const std::lock_guard lock(core_->mutex);
  if (ended()) return;
  recvs_.push({transfer, core_->find(transfer)});
  keep(match());
  if (ended()) return;
  if (why_broken_.ok()) keep_broken(receive_chunks());
  return_credits();
  write();
}

// Takes all steps that are possible now. Returns true if anything has changed.
bool NetChannel::advance(TimePoint now) {
  const auto state = [this] {
    return sends_completed_ + recvs_completed_ + begun_ + matched_ + chunks_sent_ +
           chunks_received_ + granted_.size() + receiving_.size() + copied_;
  };
  const uint64_t before = state();
  bool moved = false;
  if (why_broken_.ok()) {
    const auto advanced = advance_links(now);
    keep_broken(advanced.status());
    moved = advanced.ok() && advanced.value();
  }
  if (why_broken_.ok()) keep_broken(finish_chunks());
  if (why_broken_.ok()) keep_broken(advance_copies(now));
  keep(match());
  if (ended()) return true;
  send_messages();
  if (why_broken_.ok()) keep_broken(send_chunks());
  if (why_broken_.ok()) keep_broken(receive_chunks());
  return_credits();
  write();
  complete_sends();
  complete_recvs();
  return moved || before != state();
}

Result<bool> NetChannel::advance_links(TimePoint now) {
  bool moved = false;
  for (Link* link : {out_.get(), in_.get()}) {
    if (link == nullptr || link->is_open()) continue;
    HETCCL_ASSIGN(const bool advanced, link->advance(now));
    moved |= advanced;
  }
  return moved;
}

// --- sending

// Sends headers of as many messages as the receiver has room for.
void NetChannel::send_messages() {
  bool put_any = false;
  for (; begun_ < sends_.size() && credits_ > 0; ++begun_, --credits_) {
    Sending& sending = sends_[begun_];
    const Parcel& transfer = sending.transfer;
    const bool whole = sending.is_whole();
    uint8_t header[kHeaderBytes];
    encode(Header{sends_completed_ + begun_, 0, transfer.bytes, transfer.bytes, transfer.info},
           header);
    put({whole ? FrameKind::Whole : FrameKind::Long, std::exchange(owed_, 0), chunk_bytes_});
    stream_.put(header, sizeof header);
    if (whole) stream_.put(transfer.data, transfer.bytes);
    sending.end = stream_.put_bytes();
    core_->bytes_sent.fetch_add(kHeaderBytes + (whole ? transfer.bytes : 0),
                                std::memory_order_relaxed);
    put_any = true;
  }
  if (put_any) write();
}

// Sends the chunks of messages in the order of their grants.
Status NetChannel::send_chunks() {
  while (out_ != nullptr && out_->is_open() && !granted_.empty()) {
    const uint64_t number = granted_.front();
    Sending& sending = sends_[number - sends_completed_];
    const size_t left = sending.transfer.bytes - sending.begun;
    const Range range{static_cast<std::byte*>(sending.transfer.data) + sending.begun,
                      std::min(left, out_->chunk_bytes())};
    HETCCL_ASSIGN(const bool taken, out_->begin({range, number, sending.known}));
    if (!taken) return {};
    core_->bytes_sent.fetch_add(range.bytes, std::memory_order_relaxed);
    sending.begun += range.bytes;
    if (range.bytes == left) granted_.pop();
  }
  return {};
}

Status NetChannel::finish_chunks() {
  while (out_ != nullptr && out_->is_open()) {
    HETCCL_ASSIGN(const auto chunk, out_->finish());
    if (!chunk) break;
    sends_[chunk->message - sends_completed_].complete += chunk->range.bytes;
    ++chunks_sent_;
  }
  while (in_ != nullptr && in_->is_open()) {
    HETCCL_ASSIGN(const auto chunk, in_->finish());
    if (!chunk) break;
    Receiving& receiving = recvs_[chunk->message - recvs_completed_];
    receiving.received += chunk->range.bytes;
    receiving.complete = receiving.received == receiving.transfer.bytes;
    ++chunks_received_;
  }
  return {};
}

void NetChannel::complete_sends() {
  for (; begun_ > 0; --begun_, ++sends_completed_) {
    const Sending& first = sends_.front();
    if (first.is_whole() ? first.end > stream_.written() : first.complete < first.transfer.bytes)
      return;
    sends_.pop();
  }
}

// --- receiving

Status NetChannel::match() {
  for (; matched_ < recvs_.size() && !inbox_.empty(); ++matched_, ++owed_) {
    if (!may_begin(recvs_[matched_], inbox_.front())) break;
    HETCCL_TRY(begin(recvs_[matched_], inbox_.front(), recvs_completed_ + matched_));
    inbox_.pop();
  }
  complete_recvs();
  return {};
}

Status NetChannel::begin(Receiving& receiving, const Arrived& arrived, uint64_t number) {
  const Header& header = arrived.header;
  HETCCL_TRY(check(header, receiving.transfer, peer_));
  if (header.number != number) return defect("its messages are out of order");
  if (arrived.whole && header.total > 0 && is_on_device(receiving.known)) {
    if (why_broken_.ok()) keep_broken(write_to_device(receiving, arrived, number));
    return {};
  }
  receiving.complete = arrived.whole;
  if (receiving.complete) {
    if (header.total > 0) std::memcpy(receiving.transfer.data, slot_at(arrived.slot), header.total);
    return {};
  }
  if (in_ == nullptr && why_broken_.ok()) keep_broken(listen(arrived.chunk_bytes));
  if (!why_broken_.ok()) return {};
  receiving_.push(number);
  put({FrameKind::Grant, std::exchange(owed_, 0), number});
  return {};
}

// The first long message makes the plug-in's connection, which all later ones use.
Status NetChannel::listen(size_t chunk_bytes) {
  HETCCL_ASSIGN(in_, Link::listen(route(), chunk_bytes, deadline()));
  uint8_t hello[kHelloBytes];
  encode(in_->hello(), hello);
  put({FrameKind::Listen, std::exchange(owed_, 0), 0});
  stream_.put(hello, sizeof hello);
  return {};
}

// Receives the chunks of messages in the order of their grants.
Status NetChannel::receive_chunks() {
  while (in_ != nullptr && in_->is_open() && !receiving_.empty()) {
    const uint64_t number = receiving_.front();
    Receiving& receiving = recvs_[number - recvs_completed_];
    const size_t left = receiving.transfer.bytes - receiving.begun;
    const Range range{static_cast<std::byte*>(receiving.transfer.data) + receiving.begun,
                      std::min(left, in_->chunk_bytes())};
    HETCCL_ASSIGN(const bool taken,
                  in_->begin({range, number, receiving.known, range.bytes == left}));
    if (!taken) return {};
    receiving.begun += range.bytes;
    if (range.bytes == left) receiving_.pop();
  }
  return {};
}

// Returns false while a short message for a GPU waits for room in the loopback.
bool NetChannel::may_begin(const Receiving& receiving, const Arrived& arrived) const {
  return !arrived.whole || !is_on_device(receiving.known) || loopback_ == nullptr ||
         loopback_->has_room() || !why_broken_.ok();
}

Status NetChannel::write_to_device(const Receiving& receiving, const Arrived& arrived,
                                   uint64_t number) {
  if (loopback_ == nullptr) {
    HETCCL_ASSIGN(loopback_, Loopback::create(route(), deadline()));
  }
  loopback_->write({receiving.known, receiving.transfer.data}, slot_at(arrived.slot),
                   arrived.header.total);
  copies_.push(number);
  return {};
}

Status NetChannel::advance_copies(TimePoint now) {
  if (copies_.empty()) return {};
  HETCCL_TRY(loopback_->advance(now).status());
  for (; copied_ < loopback_->ended(); ++copied_, copies_.pop())
    recvs_[copies_.front() - recvs_completed_].complete = true;
  return {};
}

void NetChannel::complete_recvs() {
  for (; matched_ > 0 && recvs_.front().complete; --matched_, ++recvs_completed_) recvs_.pop();
}

void NetChannel::return_credits() {
  if (owed_ >= kCredits / 2) put({FrameKind::Credits, std::exchange(owed_, 0), 0});
}

}  // namespace hetccl::transport::ncclnet
