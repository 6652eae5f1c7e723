// Messages in registered memory, above all in device memory, which no host thread may touch.
#include <algorithm>
#include <utility>

#include "transport/verbs/channel.h"

namespace hetccl::transport::verbs {

Piece VerbsChannel::find(const Parcel& transfer, size_t offset) const {
  if (!transfer.registered) return nullptr;
  return core_->registry().find(static_cast<std::byte*>(transfer.data) + offset);
}

bool VerbsChannel::is_on_device(const Parcel& transfer) const {
  if (transfer.bytes == 0) return false;
  const Piece known = find(transfer, 0);
  return known != nullptr && known->on_device();
}

VerbsChannel::Parts VerbsChannel::parts_of(const Parcel& transfer, size_t offset,
                                           size_t bytes) const {
  Parts parts;
  while (bytes > 0) {
    Piece known = find(transfer, offset);
    if (known == nullptr || parts.n == parts.list.size()) return {};
    auto* const at = static_cast<std::byte*>(transfer.data) + offset;
    const size_t length = std::min(bytes, static_cast<size_t>(known->end() - at));
    parts.list[parts.n] = {reinterpret_cast<uintptr_t>(at), static_cast<uint32_t>(length),
                           known->region(device_).local_key()};
    parts.pieces[parts.n++] = std::move(known);
    offset += length;
    bytes -= length;
  }
  return parts;
}

Status VerbsChannel::copy_from_slot(const Receiving& receiving, uint32_t slot, uint64_t number) {
  const Parcel& transfer = receiving.transfer;
  const Parts parts = parts_of(transfer, 0, transfer.bytes);
  if (parts.n == 0) return unknown_memory();
  const bool flushes = parts.pieces[0]->needs_flush();
  size_t offset = 0;
  for (size_t i = 0; i < parts.n; ++i) {
    const bool last = i + 1 == parts.n;
    copies_.push(
        {slot, number, offset, parts.list[i].length, last, last && !flushes, parts.pieces[i]});
    offset += parts.list[i].length;
  }
  return flushes ? flush(number, parts.pieces[0]) : begin_copies();
}

// Begins a flush after the copies queued before. A flush reads one piece of memory even if there
// are several, because one read orders all of the device's writes.
Status VerbsChannel::flush(uint64_t number, Piece piece) {
  copies_.push({{}, number, 0, 1, false, true, std::move(piece)});
  return begin_copies();
}

Status VerbsChannel::make_loopback() {
  HETCCL_ASSIGN(loopback_, Loopback::create(port_, core_->config(), this));
  armed_ = false;  // its queue is not
  return {};
}

Status VerbsChannel::begin_copies() {
  if (loopback_ == nullptr) HETCCL_TRY(make_loopback());
  for (; copying_ < copies_.size() && loopback_->has_room(); ++copying_)
    HETCCL_TRY(begin_copy(copies_[copying_]));
  return {};
}

Status VerbsChannel::begin_copy(const LocalCopy& copy) {
  const Parcel& transfer = recvs_[copy.number - recvs_completed_].transfer;
  const uint32_t slot = copy.slot.value_or(kFlushSlot);
  const size_t prefix = copy.slot ? kPrefixBytes + copy.offset : 0;
  const abi::Sge here{reinterpret_cast<uintptr_t>(slot_at(slot) + prefix),
                      static_cast<uint32_t>(copy.bytes), slots_region_.local_key()};
  auto* const there = static_cast<std::byte*>(transfer.data) + copy.offset;
  const uint32_t key = copy.piece->region(device_).remote_key();
  return copy.slot ? loopback_->write(here, there, key) : loopback_->read(here, there, key);
}

Status VerbsChannel::end_copies() {
  if (loopback_ == nullptr || copying_ == 0) return {};
  HETCCL_ASSIGN(uint32_t ended, loopback_->poll());
  if (ended == 0) return {};
  for (; ended > 0; --ended, --copying_) {
    const LocalCopy copy = std::exchange(copies_.front(), {});
    copies_.pop();
    if (copy.completes) recvs_[copy.number - recvs_completed_].complete = true;
    if (copy.frees) HETCCL_TRY(free_slot(*copy.slot));
  }
  complete_recvs();
  return begin_copies();
}

Status VerbsChannel::unknown_memory() const {
  return error(ErrorCode::InternalError,
               "RDMA with rank %d: memory of a device that %s knew is known no more. This is a "
               "defect of hetccl: please report it",
               peer_, port_.name.c_str());
}

}  // namespace hetccl::transport::verbs
