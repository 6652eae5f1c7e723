#include "exec/link_probe.h"

#include <algorithm>

namespace hetccl::exec {

LinkProbe::LinkProbe(transport::Channel& channel, uint64_t communicator, bool first,
                     const Clock& clock)
    : channel_(channel),
      communicator_(communicator),
      first_(first),
      clock_(clock),
      out_(kPieceBytes),
      in_(kPieceBytes) {}

transport::Transfer LinkProbe::transfer(std::vector<std::byte>& buffer, size_t number) const {
  transport::Transfer transfer;
  transfer.data = buffer.data();
  transfer.bytes = number < kPings ? sizeof(uint64_t) : kPieceBytes;
  transfer.info = {.communicator = communicator_,
                   .sequence = number,
                   .signature = {.collective = Collective::PointToPoint, .count = transfer.bytes}};
  return transfer;
}

void LinkProbe::send() {
  channel_.post_send(transfer(out_, sent_++));
}

bool LinkProbe::poll(TimePoint /*now*/) {
  if (done()) return false;
  bool moved = false;
  if (!posted_) {
    for (size_t number = 0; number < kMessages; ++number) channel_.post_recv(transfer(in_, number));
    if (first_) send();
    posted_ = moved = true;
  }
  for (; received_ < channel_.recvs_completed(); ++received_) {
    moved = true;
    arrived_[received_] = clock_.now();
    if (sent_ < kPings) send();
    if (received_ + 1 < kPings) continue;
    while (sent_ < kMessages) send();
  }
  const bool all = received_ == kMessages && channel_.sends_completed() == kMessages;
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

double LinkProbe::bandwidth() const {
  const auto since = [&](size_t piece) {
    const Duration time = arrived_[kMessages - 1] - arrived_[kPings + piece - 1];
    const double seconds = std::chrono::duration<double>(std::max(time, Duration(1000))).count();
    return static_cast<double>((kPieces - piece) * kPieceBytes) / seconds;
  };
  // Where this thread did not run for a while, it has seen the last pieces together.
  return std::min(since(0), since(kBurst));
}

}  // namespace hetccl::exec
