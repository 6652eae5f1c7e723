#include "exec/link_probe.h"

#include <algorithm>

namespace hetccl::exec {

LinkProbe::LinkProbe(transport::Channel& channel, uint64_t communicator, bool first,
                     const Clock& clock)
    : channel_(channel), communicator_(communicator), first_(first), clock_(clock) {
  out_.pieces.resize(kPieces.bytes);
  in_.pieces.resize(kPieces.bytes * kPieces.size());
}

transport::Transfer LinkProbe::transfer(Memory& memory, size_t number) const {
  transport::Transfer transfer;
  const auto from = [&](void* data, size_t bytes) {
    transfer.data = data;
    transfer.bytes = bytes;
  };
  const auto from_row = [&](const Row& row, std::vector<std::byte>& buffers) {
    from(&buffers[(number - row.first) * row.bytes % buffers.size()], row.bytes);
  };
  if (number < kPings) {
    from(&memory.ping, sizeof memory.ping);
  } else if (number < kPieces.end) {
    from_row(kPieces, memory.pieces);
  } else if (number == kVerdict) {
    from(&memory.wants_more, sizeof memory.wants_more);
  } else {
    from_row(kLong, memory.long_ones);
  }
  transfer.info = {.communicator = communicator_,
                   .sequence = number,
                   .signature = {.collective = Collective::PointToPoint, .count = transfer.bytes}};
  return transfer;
}

void LinkProbe::send(size_t end) {
  for (; sent_ < end; ++sent_) channel_.post_send(transfer(out_, sent_));
}

void LinkProbe::receive(size_t end) {
  for (; posted_ < end; ++posted_) channel_.post_recv(transfer(in_, posted_));
}

// After each message: what it lets this end send.
bool LinkProbe::go_on() {
  if (received_ == channel_.recvs_completed()) return false;
  arrived_[received_++] = clock_.now();
  if (sent_ < kPings) send(sent_ + 1);
  if (received_ >= kPings) send(kPieces.end);
  if (received_ == kPieces.end) {
    if (bandwidth_of(kPieces) >= kFast) {
      out_.wants_more = 1;
      out_.long_ones.resize(kLong.bytes);
      in_.long_ones.resize(kLong.bytes * kLong.size());
    }
    send(kVerdict + 1);
  }
  if (received_ == kVerdict + 1 && out_.wants_more == 1 && in_.wants_more == 1) {
    end_ = kLong.end;
    receive(end_);
    send(end_);
  }
  return true;
}

bool LinkProbe::poll(TimePoint /*now*/) {
  if (done()) return false;
  bool moved = false;
  if (posted_ == 0) {
    receive(end_);
    if (first_) send(1);
    moved = true;
  }
  while (go_on()) moved = true;
  const bool all = received_ == end_ && channel_.sends_completed() == end_;
  if (all || !channel_.status().ok()) done_.store(true, std::memory_order_release);
  return moved;
}

Duration LinkProbe::latency() const {
  std::array<Duration, kPings - kWarm> trips{};
  for (size_t i = 0; i < trips.size(); ++i)
    trips[i] = arrived_[kWarm + i] - arrived_[kWarm + i - 1];
  const auto middle = trips.begin() + trips.size() / 2;
  std::nth_element(trips.begin(), middle, trips.end());
  return *middle / 2;
}

double LinkProbe::bandwidth_of(const Row& row) const {
  const auto since = [&](size_t piece) {
    const Duration time = arrived_[row.end - 1] - arrived_[row.first + piece - 1];
    const double seconds = std::chrono::duration<double>(std::max(time, Duration(1000))).count();
    return static_cast<double>((row.size() - piece) * row.bytes) / seconds;
  };
  // Where this thread did not run for a while, it has seen the last pieces together.
  return std::min(since(0), since(row.burst));
}

double LinkProbe::bandwidth() const {
  return bandwidth_of(end_ == kLong.end ? kLong : kPieces);
}

}  // namespace hetccl::exec
