#include "exec/link_probe.h"

#include <algorithm>
#include <iterator>

namespace hetccl::exec {
namespace {

// Returns the median. Reorders `values`.
template <typename Values>
auto median(Values& values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

LinkProbe::LinkProbe(transport::Channel& channel, uint64_t communicator, bool first,
                     const Clock& clock)
    : channel_(channel), communicator_(communicator), first_(first), clock_(clock) {
  out_.pieces.resize(kPieces.bytes);
  in_.pieces.resize(kPieces.bytes * kPieces.size());
}

transport::Parcel LinkProbe::transfer(EndBuffers& buffers, size_t number) const {
  transport::Parcel transfer;
  const auto from = [&](void* data, size_t bytes) {
    transfer.data = data;
    transfer.bytes = bytes;
  };
  const auto from_row = [&](const Row& row, std::vector<std::byte>& row_buffers) {
    from(&row_buffers[(number - row.first) * row.bytes % row_buffers.size()], row.bytes);
  };
  if (number < kPings) {
    from(&buffers.ping, sizeof buffers.ping);
  } else if (number < kPieces.end) {
    from_row(kPieces, buffers.pieces);
  } else if (number == kRate) {
    from(&buffers.rate, sizeof buffers.rate);
  } else {
    from_row(long_messages_, buffers.long_messages);
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

// Handles the next received message, and sends the messages that may follow it.
bool LinkProbe::take_received() {
  if (received_ == channel_.recvs_completed()) return false;
  arrived_[received_++] = clock_.now();
  if (sent_ < kPings) send(sent_ + 1);
  if (received_ >= kPings) send(kPieces.end);
  if (received_ == kPieces.end) {
    out_.rate = static_cast<uint64_t>(rate_of(kPieces));
    size_long_messages(out_.rate);
    send(kRate + 1);
  }
  if (received_ == kRate + 1) {
    // Use no longer messages than before, so that nothing is allocated here.
    size_long_messages(std::min(out_.rate, in_.rate));
    if (long_messages_.bytes > 0) end_ = long_messages_.end;
    receive(end_);
    send(end_);
  }
  return true;
}

// Sizes long messages to 4 ms each, 25 ms for all; 0 if the pieces took that long themselves.
void LinkProbe::size_long_messages(uint64_t rate) {
  const auto passes = static_cast<size_t>(std::min<uint64_t>(rate / 250, uint64_t{1} << 20U));
  const size_t bytes = passes < kPieces.bytes ? 0 : passes;
  long_messages_.bytes = bytes;
  out_.long_messages.resize(bytes);
  in_.long_messages.resize(bytes * long_messages_.size());
}

bool LinkProbe::poll(TimePoint /*now*/) {
  if (done()) return false;
  bool moved = false;
  if (posted_ == 0) {
    receive(end_);
    if (first_) send(1);
    moved = true;
  }
  while (take_received()) moved = true;
  const bool all = received_ == end_ && channel_.sends_completed() == end_;
  if (all || !channel_.status().ok()) done_.store(true, std::memory_order_release);
  return moved;
}

Duration LinkProbe::latency() const {
  std::array<Duration, kPings - kWarm> trips{};
  for (size_t i = 0; i < trips.size(); ++i)
    trips[i] = arrived_[kWarm + i] - arrived_[kWarm + i - 1];
  return median(trips) / 2;
}

// Returns the median rate over all pairs of messages. Bursts, delays of this thread and the slow
// start of a stream affect few pairs.
double LinkProbe::rate_of(const Row& row) const {
  std::vector<double> times;  // per message, in seconds
  for (size_t a = row.first - 1; a < row.end; ++a) {
    for (size_t b = a + 1; b < row.end; ++b) {
      const std::chrono::duration<double> between = arrived_[b] - arrived_[a];
      times.push_back(between.count() / static_cast<double>(b - a));
    }
  }
  return static_cast<double>(row.bytes) / std::max(median(times), 1e-9);
}

// Returns the median of three rates, because each is wrong now and then: the pieces' rate at this
// end, the same at the other end, and the long messages' rate at this end.
double LinkProbe::bandwidth() const {
  const auto mine = static_cast<double>(out_.rate), theirs = static_cast<double>(in_.rate);
  if (long_messages_.bytes == 0) return std::min(mine, theirs);
  return std::clamp(rate_of(long_messages_), std::min(mine, theirs), std::max(mine, theirs));
}

}  // namespace hetccl::exec
