// How a channel receives: messages meet receives in order, and long messages are granted memory.
#include <algorithm>
#include <cstring>

#include "transport/verbs/channel.h"

namespace hetccl::transport::verbs {

void VerbsChannel::post_recv(const Parcel& transfer) {
  if (ended()) return;
  recvs_.push({transfer, is_on_device(transfer)});
  keep(match());
  if (ended() || broken_ || stage_ != Stage::Open) return;
  keep(grant_chunks());
  if (!ended()) keep(return_credits());
}

Status VerbsChannel::match() {
  while (matched_ < recvs_.size() && !inbox_.empty()) {
    const uint32_t slot = inbox_.front();
    inbox_.pop();
    const size_t index = matched_++;
    HETCCL_TRY(begin(recvs_[index], slot, recvs_completed_ + index));
    complete_recvs();
  }
  return {};
}

Status VerbsChannel::begin(Receiving& receiving, uint32_t slot, uint64_t number) {
  const Header header = header_of(slot);
  HETCCL_TRY(check(header, receiving.transfer, peer_));
  if (header.number != number) return defect("its messages are out of order");
  if (is_long(slot)) return free_slot(slot);
  receiving.granted = header.total;  // a short message needs no grant
  if (receiving.on_device && header.total > 0) return copy_from_slot(receiving, slot, number);
  if (header.total > 0)
    std::memcpy(receiving.transfer.data, slot_at(slot) + kPrefixBytes, header.total);
  receiving.complete = true;
  return free_slot(slot);
}

Status VerbsChannel::free_slot(uint32_t slot) {
  ++owed_;
  return broken_ ? Status() : repost(slot);
}

// Grants memory to the oldest messages first. If memory cannot be locked, the chunks under way free
// some when they end.
Status VerbsChannel::grant_chunks() {
  uint32_t index = 0;
  for (size_t i = 0; i < matched_; ++i) {
    Receiving& receiving = recvs_[i];
    while (!receiving.complete && receiving.granted < receiving.transfer.bytes) {
      while (index < kGrants && granted_[index].under_way) ++index;
      if (index == kGrants || free_slots_.empty()) return {};
      const size_t before = receiving.granted;
      HETCCL_TRY(grant_chunk(receiving, recvs_completed_ + i, index));
      if (receiving.granted == before) return {};
    }
  }
  return {};
}

Status VerbsChannel::grant_chunk(Receiving& receiving, uint64_t number, uint32_t index) {
  size_t bytes = std::min(kChunkBytes, receiving.transfer.bytes - receiving.granted);
  auto* data = static_cast<std::byte*>(receiving.transfer.data) + receiving.granted;
  Chunk& chunk = granted_[index];
  uint32_t key = 0;
  if (Piece known = find(receiving.transfer, receiving.granted); known != nullptr) {
    bytes = std::min(bytes, static_cast<size_t>(known->end() - data));
    key = known->region(device_).remote_key();
    chunk.pieces[0] = std::move(known);
  } else {
    if (!core_->may_grant()) return {};
    bool again = false;
    auto region = register_chunk(data, bytes, abi::kLocalWrite | abi::kRemoteWrite, &again);
    if (!region.ok() && again) return {};
    HETCCL_TRY(region.status());
    key = region->remote_key();
    chunk.region = std::move(region).value();
  }
  const uint32_t slot = free_slots_.back();
  encode(Grant{number, receiving.granted, bytes, reinterpret_cast<uintptr_t>(data), key, index},
         slot_at(slot) + kFrameBytes);
  chunk.under_way = true;
  chunk.number = number;
  chunk.bytes = bytes;
  receiving.granted += bytes;
  return send_frame(slot, FrameKind::Grant, kFrameBytes + kGrantBytes, {});
}

Status VerbsChannel::finish_grant(uint32_t index, size_t bytes) {
  if (index >= kGrants || !granted_[index].under_way)
    return defect("it writes where nothing was granted");
  Chunk& chunk = granted_[index];
  if (bytes != chunk.bytes) return defect("a write does not fill the memory granted for it");
  release(chunk, core_->grants);
  Receiving& receiving = recvs_[chunk.number - recvs_completed_];
  receiving.received += chunk.bytes;
  if (receiving.received < receiving.transfer.bytes) return {};
  Piece known = receiving.on_device ? find(receiving.transfer, 0) : nullptr;
  if (known != nullptr && known->needs_flush()) return flush(chunk.number, std::move(known));
  receiving.complete = true;
  complete_recvs();
  return {};
}

}  // namespace hetccl::transport::verbs
