#include "onesided/outbox.h"

#include <algorithm>
#include <utility>

namespace hetccl::onesided {

namespace {

size_t length_of(const Outbox::Item& item) {
  return item.frame.empty() ? item.bytes : item.frame.size();
}

}  // namespace

transport::MessageInfo header_of(uint64_t communicator, uint64_t number, size_t frame_bytes,
                                 size_t beside) {
  transport::MessageInfo info;
  info.communicator = communicator;
  info.sequence = number;
  info.slice = static_cast<uint32_t>(frame_bytes);
  info.beside = beside;
  info.signature.collective = Collective::PointToPoint;
  info.signature.type = DataType::Uint8;
  return info;
}

void Outbox::add(Item item) {
  bytes_ += length_of(item);
  if (item.ticket != Stager::Ticket{}) last_ticket_ = item.ticket;
  waiting_.push_back(std::move(item));
}

void Outbox::post(Item& item) {
  transport::Parcel parcel;
  parcel.data = item.frame.empty() ? static_cast<void*>(item.data) : item.frame.data();
  const size_t beside = item.beside ? item.bytes : 0;
  parcel.bytes = length_of(item) - beside;
  parcel.list = item.list;
  parcel.registered = item.registered;
  parcel.info = header_of(communicator_, n_posted_++, item.frame.size(), beside);
  channel_.post_send(parcel);
}

bool Outbox::progress(TimePoint now) {
  bool moved = false;
  while (!waiting_.empty() && posted_.size() < kMostPosted &&
         reached(stager_, waiting_.front().ticket)) {
    posted_.push_back(std::move(waiting_.front()));  // moving the item does not move its data
    waiting_.pop_front();
    post(posted_.back());
    moved = true;
  }
  const uint64_t completed = channel_.sends_completed();
  size_t left_bytes = 0;
  for (; n_sent_ < completed; ++n_sent_) {
    const Item left = std::move(posted_.front());
    posted_.pop_front();
    left_bytes += length_of(left);
    if (left.sent) left.sent();
    moved = true;
  }
  bytes_ -= left_bytes;
  pace_.count(left_bytes, now);
  if (size() == 0) pace_.rest();
  return moved;
}

bool Outbox::touches(const Region& region) const {
  const auto use = [&](const Item& item) { return are_of(item.uses, region); };
  return std::any_of(waiting_.begin(), waiting_.end(), use) ||
         std::any_of(posted_.begin(), posted_.end(), use);
}

}  // namespace hetccl::onesided
