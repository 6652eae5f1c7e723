// How a channel sends: whole messages through slots, long ones chunk by chunk into the memory that
// the receiver grants.
#include <cstring>
#include <utility>

#include "transport/verbs/channel.h"

namespace hetccl::transport::verbs {

void VerbsChannel::post_send(const Parcel& transfer) {
  if (ended()) return;
  sends_.push({transfer, is_on_device(transfer)});
  if (stage_ == Stage::Open && !broken_) keep(send_messages());
}

// Sends as many messages as the receiver has room for. Grants and returned credits have slots of
// their own, because messages may wait for them.
Status VerbsChannel::send_messages() {
  while (begun_ < sends_.size() && credits_ > 0 && messages_out_ < kCredits &&
         !free_slots_.empty()) {
    HETCCL_TRY(send_message(sends_[begun_], sends_completed_ + begun_));
    ++begun_;
  }
  return {};
}

Status VerbsChannel::send_message(Sending& sending, uint64_t number) {
  const Parcel& transfer = sending.transfer;
  const bool whole = transfer.bytes == 0 || (transfer.bytes <= kMostWhole && !sending.on_device);
  const uint32_t slot = free_slots_.back();
  uint8_t* out = slot_at(slot);
  encode(Header{number, 0, transfer.bytes, transfer.bytes, transfer.info}, out + kFrameBytes);
  if (whole && transfer.bytes > 0) std::memcpy(out + kPrefixBytes, transfer.data, transfer.bytes);
  --credits_;
  ++messages_out_;
  core_->bytes_sent.fetch_add(kHeaderBytes + (whole ? transfer.bytes : 0),
                              std::memory_order_relaxed);
  return send_frame(slot, whole ? FrameKind::Whole : FrameKind::Long,
                    kPrefixBytes + (whole ? transfer.bytes : 0), {whole, true, number});
}

// Sends the frame in `slot`, the last free one. `bytes` is the length of the frame with its
// content.
Status VerbsChannel::send_frame(uint32_t slot, FrameKind kind, size_t bytes,
                                const Outgoing& outgoing) {
  free_slots_.pop_back();
  outgoing_[slot] = outgoing;
  encode(Frame{kind, std::exchange(owed_, 0)}, slot_at(slot));
  abi::Sge part{reinterpret_cast<uintptr_t>(slot_at(slot)), static_cast<uint32_t>(bytes),
                slots_region_.local_key()};
  return queues_.front()->post_send(id_of(Work::Frame, slot), {&part, 1}, nullptr);
}

Status VerbsChannel::return_credits() {
  if (owed_ < kCredits / 2 || free_slots_.empty()) return {};
  return send_frame(free_slots_.back(), FrameKind::Credits, kFrameBytes, {});
}

// Checks the peer's grant: a wrong one must not reach beyond the message that it names.
Status VerbsChannel::accept_grant(const Grant& grant) {
  const uint64_t index = grant.message - sends_completed_;
  const bool known = grant.message >= sends_completed_ && index < begun_;
  const size_t total = known ? sends_[index].transfer.bytes : 0;
  const bool is_long = total > kMostWhole || (known && total > 0 && sends_[index].on_device);
  const bool sound = is_long && grant.index < kGrants && grant.bytes > 0 &&
                     grant.bytes <= kChunkBytes && grant.offset == sends_[index].granted &&
                     grant.bytes <= total - grant.offset && grants_.size() < kGrants;
  if (!sound) return defect("it grants memory that no message needs");
  sends_[index].granted += grant.bytes;
  grants_.push(grant);
  return {};
}

// The peer may grant an index again before this end has seen the completion of the write for its
// last grant. If memory cannot be locked now, it can be once another write has ended.
Status VerbsChannel::write_chunks() {
  while (!grants_.empty()) {
    const Grant grant = grants_.front();
    Chunk& chunk = writes_[grant.index];
    if (chunk.under_way) return {};
    const Parcel& transfer = sends_[grant.message - sends_completed_].transfer;
    Parts parts = parts_of(transfer, grant.offset, grant.bytes);
    if (parts.n == 0) {
      auto* data = static_cast<std::byte*>(transfer.data) + grant.offset;
      bool again = false;
      auto region = register_chunk(data, grant.bytes, 0, &again);
      if (!region.ok() && again) return {};
      HETCCL_TRY(region.status());
      parts.list[parts.n++] = {reinterpret_cast<uintptr_t>(data),
                               static_cast<uint32_t>(grant.bytes), region->local_key()};
      chunk.region = std::move(region).value();
    }
    chunk.under_way = true;
    chunk.pieces = std::move(parts.pieces);
    chunk.number = grant.message;
    chunk.bytes = grant.bytes;
    core_->bytes_sent.fetch_add(grant.bytes, std::memory_order_relaxed);
    grants_.pop();
    const QueuePair::Remote remote{grant.address, grant.key, grant.index};
    HETCCL_TRY(queues_[grant.index % queues_.size()]->post_send(
        id_of(Work::Chunk, grant.index), std::span(parts.list).first(parts.n), &remote));
  }
  return {};
}

void VerbsChannel::finish_frame(uint32_t slot) {
  const Outgoing& outgoing = outgoing_[slot];
  free_slots_.push_back(slot);
  if (outgoing.message) --messages_out_;
  if (!outgoing.whole) return;
  sends_[outgoing.number - sends_completed_].complete = true;
  complete_sends();
}

void VerbsChannel::finish_chunk(uint32_t index) {
  Chunk& chunk = writes_[index];
  release(chunk, core_->writes);
  Sending& sending = sends_[chunk.number - sends_completed_];
  sending.written += chunk.bytes;
  sending.complete = sending.written == sending.transfer.bytes;
  complete_sends();
}

}  // namespace hetccl::transport::verbs
