#include "exec/order.h"

namespace hetccl::exec {

Status Order::give_buffers(Operation& op, uint64_t number) {
  if (!op.code->rotates) return op.use_own_buffers();
  HETCCL_ASSIGN(const auto turn,
                rotation->take(number, in_flight.oldest(), op.scratch_bytes(), op.staging_bytes()));
  op.use(turn);
  return {};
}

Status Order::enlarge_buffers(Operation& op, const Rotation::Turn& turn) {
  if (turn.left == nullptr) return op.use_own_buffers();
  HETCCL_ASSIGN(const auto larger, rotation->enlarge(turn, in_flight.oldest(), op.scratch_bytes(),
                                                     op.staging_bytes()));
  op.use(larger);
  return {};
}

void Order::release_waits() {
  const uint64_t end = in_flight.end();
  for (uint64_t n = in_flight.oldest(); n < end; ++n) in_flight.at(n).release_waits();
  if (rotation != nullptr) rotation->release_waits();
}

void MessageOrders::add(int peer, MessageEnds ends) {
  for (MessageOrder* order : {ends.receives.get(), ends.sends.get()}) {
    if (order != nullptr && peer != kAnyRank) all_.push_back(order);
  }
  if (peer == kAnyRank) {
    any_ = std::move(ends);
    return;
  }
  const auto at = static_cast<size_t>(peer);
  if (by_peer_.size() <= at) by_peer_.resize(at + 1);
  by_peer_[at] = std::move(ends);
}

MessageOrder& MessageOrders::of(int peer, bool send) const {
  if (peer == kAnyRank) return *any_.receives;
  const MessageEnds& ends = by_peer_[static_cast<size_t>(peer)];
  return send || peer == self_ ? *ends.sends : *ends.receives;
}

void MessageOrders::launch(std::span<Operation* const> operations) {
  const std::lock_guard lock(mutex_);
  launched_.insert(launched_.end(), operations.begin(), operations.end());
  has_launched_.store(true, std::memory_order_release);
}

}  // namespace hetccl::exec
