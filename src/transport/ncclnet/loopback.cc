#include "transport/ncclnet/loopback.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace hetccl::transport::ncclnet {
namespace {

constexpr uint64_t kSlots = 0;  // a number that no registration has

}  // namespace

Loopback::Loopback(ConnectionPair pair, std::unique_ptr<Link> in, std::unique_ptr<Link> out)
    : slots_(kRoom * kMostWhole),
      slots_known_{kSlots, {.data = slots_.data(), .bytes = slots_.size()}, {}},
      pair_(std::move(pair)),
      in_(std::move(in)),
      out_(std::move(out)) {}

Result<std::unique_ptr<Loopback>> Loopback::create(const Route& route, TimePoint deadline) {
  HETCCL_ASSIGN(auto pair, route.plugin->take_pair(route.device));
  HETCCL_ASSIGN(auto in, Link::listen(route, route.chunk_bytes(), deadline));
  auto out = Link::connect(route, in->hello(), deadline);
  return std::unique_ptr<Loopback>(new Loopback(std::move(pair), std::move(in), std::move(out)));
}

void Loopback::copy(const Place& to, const Place& from, size_t bytes) {
  copies_.push({{to}, {from}, bytes});
}

void Loopback::write(const Place& to, const void* from, size_t bytes) {
  std::byte* const slot = slots_.data() + (ended_ + copies_.size()) % kRoom * kMostWhole;
  std::memcpy(slot, from, bytes);
  copy(to, {&slots_known_, slot}, bytes);
}

Result<bool> Loopback::advance(TimePoint now) {
  if (!is_open()) return connect(now);
  HETCCL_ASSIGN(const bool received, move(*in_, &Copy::to));
  HETCCL_ASSIGN(const bool sent, move(*out_, &Copy::from));
  for (; !copies_.empty() && copies_.front().ended(); ++ended_) copies_.pop();
  return received || sent;
}

Result<bool> Loopback::connect(TimePoint now) {
  HETCCL_ASSIGN(const bool to, out_->advance(now));
  HETCCL_ASSIGN(const bool from, in_->advance(now));
  return to || from;
}

Result<bool> Loopback::move(Link& link, Side Copy::* side) {
  bool moved = false;
  for (;; moved = true) {
    HETCCL_ASSIGN(const auto chunk, link.finish());
    if (!chunk) break;
    (copies_[chunk->message - ended_].*side).complete += chunk->range.bytes;
  }
  HETCCL_ASSIGN(const bool begun, begin(link, side));
  return moved || begun;
}

Result<bool> Loopback::begin(Link& link, Side Copy::* side) {
  bool moved = false;
  for (size_t i = 0; i < copies_.size(); ++i) {
    Copy& copy = copies_[i];
    for (Side& one = copy.*side; one.begun < copy.bytes; moved = true) {
      const size_t left = copy.bytes - one.begun;
      const Range range{static_cast<std::byte*>(one.place.data) + one.begun,
                        std::min(left, link.chunk_bytes())};
      HETCCL_ASSIGN(const bool taken,
                    link.begin({range, ended_ + i, one.place.known, range.bytes == left}));
      if (!taken) return moved;
      one.begun += range.bytes;
    }
  }
  return moved;
}

Status Loopback::finish(const WaitLimit& limit) {
  for (const TimePoint deadline = limit.deadline(); !is_open() || is_busy();) {
    const TimePoint now = steady_clock().now();
    HETCCL_ASSIGN(const bool moved, advance(now));
    HETCCL_TRY(limit.cancelled());
    if (limit.now() >= deadline) return error(ErrorCode::Timeout, "it copies nothing in time");
    if (!moved) std::this_thread::yield();
  }
  return {};
}

Status Loopback::register_once(const Known& known) {
  HETCCL_TRY(in_->register_once(known));
  return out_->register_once(known);
}

void Loopback::forget(uint64_t number) {
  in_->forget(number);
  out_->forget(number);
}

}  // namespace hetccl::transport::ncclnet
