#include "transport/tcp/tcp_channel.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

namespace hetccl::transport::tcp {

namespace {

// Large enough that its header and system call weigh nothing, small enough that a few pieces are
// always there for every stream.
constexpr size_t kPieceBytes = 256 << 10;
// From this size on consecutive pieces take turns over the streams; smaller ones stay on one, whose
// window is warm.
constexpr size_t kTurnBytes = 32 << 10;
// What a post may move before it returns.
constexpr size_t kPostBudget = 1 << 20;

constexpr uint32_t kGone = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

void spend(size_t* budget, size_t bytes) {
  *budget -= std::min(*budget, bytes);
}

}  // namespace

bool Stream::on_events(uint32_t events, size_t* budget) {
  return channel.on_events(*this, events, budget);
}

TcpChannel::TcpChannel(int peer, std::vector<net::Wire> wires, std::shared_ptr<Poller> poller)
    : peer_(peer), poller_(std::move(poller)) {
  for (net::Wire& wire : wires)
    streams_.push_back(std::make_unique<Stream>(std::move(wire), *this));
}

Result<std::unique_ptr<TcpChannel>> TcpChannel::create(int peer, std::vector<net::Wire> wires,
                                                       std::shared_ptr<Poller> poller) {
  std::unique_ptr<TcpChannel> channel(new TcpChannel(peer, std::move(wires), std::move(poller)));
  std::unique_lock lock(channel->poller_->mutex);
  channel->watch_all();
  lock.unlock();
  if (!channel->status_.ok()) return channel->status_;
  return channel;
}

TcpChannel::~TcpChannel() {
  close();
}

void TcpChannel::close() {
  std::lock_guard lock(poller_->mutex);
  if (status_.ok())
    status_ = error(Code::Aborted, "the channel to rank %d was closed by this rank", peer_);
  for (const auto& stream : streams_) forget(*stream);
  streams_.clear();
  sends_.clear();
  recvs_.clear();
}

void TcpChannel::post_send(const Transfer& transfer) {
  if (!status_.ok()) return;
  const bool idle = !has_unassigned();
  sends_.push({transfer});
  size_t budget = kPostBudget;
  if (idle) write_all(&budget);
}

bool TcpChannel::assign(Stream& stream) {
  if (!has_unassigned()) return false;
  Sending& sending = sends_[unassigned_];
  const Transfer& transfer = sending.transfer;
  Header header;
  header.number = sends_completed_ + unassigned_;
  header.offset = sending.assigned;
  header.bytes = std::min(kPieceBytes, transfer.bytes - sending.assigned);
  header.total = transfer.bytes;
  header.info = transfer.info;
  stream.writer.start(header, static_cast<const std::byte*>(transfer.data) + sending.assigned);
  sending.assigned += header.bytes;
  if (sending.assigned == transfer.bytes) ++unassigned_;
  return true;
}

// Writes to the streams in turn until nothing is left, all are full, or the budget is spent.
bool TcpChannel::write_all(size_t* budget) {
  bool moved = false;
  size_t refused = 0;  // streams in a row that took nothing
  while (refused < streams_.size() && *budget > 0 && status_.ok()) {
    Stream& stream = *streams_[next_stream_];
    if (stream.full || (!stream.writer.active() && !assign(stream))) {
      next_stream_ = (next_stream_ + 1) % streams_.size();
      ++refused;
      continue;
    }
    const size_t before = *budget;
    if (write(stream, budget) == Io::Failed) return true;
    moved |= *budget < before;
    refused = 0;
    if (before - *budget >= kTurnBytes || stream.full)
      next_stream_ = (next_stream_ + 1) % streams_.size();
  }
  if (status_.ok()) watch_all();
  return moved;
}

Io TcpChannel::write(Stream& stream, size_t* budget) {
  size_t written = 0;
  const uint64_t message = stream.writer.message();
  const size_t header_left = stream.writer.header_left();
  const Io result = stream.writer.write(stream.wire, &written);
  if (result == Io::Failed) {
    fail(closed(stream.wire.failure()));
    return result;
  }
  stream.full = result == Io::Blocked;
  spend(budget, written);
  poller_->bytes_sent.fetch_add(written, std::memory_order_relaxed);
  Sending& sending = sends_[message - sends_completed_];
  sending.written += written - std::min(written, header_left);
  sending.last_written |= result == Io::Moved;
  while (!sends_.empty() && sends_.front().last_written &&
         sends_.front().written == sends_.front().transfer.bytes) {
    sends_.pop();
    ++sends_completed_;
    --unassigned_;
  }
  return result;
}

void TcpChannel::post_recv(const Transfer& transfer) {
  if (!status_.ok()) return;
  recvs_.push({transfer});
  size_t budget = kPostBudget;
  for (size_t i = 0; i < streams_.size() && status_.ok(); ++i) {
    Stream& stream = *streams_[i];
    if (!stream.parked) continue;
    read(stream, &budget, false);
    const bool waits = stream.reader.in_payload() || stream.wire.pending();
    if (status_.ok() && waits && !stream.parked) read(stream, &budget, true);
  }
}

// Takes what has been read ahead, then (`from_socket`) reads until the socket is empty, the next
// message has not been posted, or the budget is spent.
bool TcpChannel::read(Stream& stream, size_t* budget, bool from_socket) {
  bool moved = false;
  bool more = from_socket;
  while (status_.ok()) {
    while (!stream.reader.in_payload() && stream.reader.has_header()) {
      if (!begin_message(stream)) {
        if (status_.ok()) watch(stream);
        return moved;
      }
      moved = true;
    }
    if (!more || stream.ended) break;
    // Beyond the budget, what has left the socket is still taken: no event would tell of it.
    if (*budget == 0 && !stream.wire.pending()) break;
    size_t payload = 0;
    const Io result = stream.reader.read(stream.wire, *budget > 0, &payload, &more);
    if (result == Io::Blocked) break;
    moved = true;
    if (result == Io::Failed) {
      fail(closed(stream.wire.failure()));
    } else if (result == Io::Closed) {
      end_stream(stream);
    } else {
      spend(budget, payload + 1);
      if (payload > 0) count_payload(stream.reading, payload);
    }
  }
  if (status_.ok()) watch(stream);
  return moved;
}

// False where the message has not been posted yet (the stream stalls), or the channel has failed.
bool TcpChannel::begin_message(Stream& stream) {
  if (!stream.parked) {
    auto header = decode(stream.reader.header());
    if (!header.ok()) {
      fail(header.status().with(format("from rank %d", peer_)));
      return false;
    }
    stream.parked = std::move(header).value();
  }
  const Header& header = *stream.parked;
  if (header.number - recvs_completed_ >= recvs_.size()) {
    if (header.number >= recvs_completed_) return false;
    fail(error(Code::RemoteError, "rank %d sent a message twice", peer_));
    return false;
  }
  Receiving& receiving = recvs_[header.number - recvs_completed_];
  Status agreed = check(header, receiving.transfer, peer_);
  if (agreed.ok() && receiving.received + receiving.expected + header.bytes > header.total)
    agreed = error(Code::RemoteError, "rank %d sent a piece of a message twice", peer_);
  if (!agreed.ok()) {
    fail(std::move(agreed));
    return false;
  }
  stream.reading = header.number;
  receiving.header_seen = true;
  receiving.expected += header.bytes;
  auto* target = static_cast<std::byte*>(receiving.transfer.data) + header.offset;
  const size_t buffered = stream.reader.begin_payload(target, header.bytes);
  stream.parked.reset();
  stream.stalled = false;
  count_payload(stream.reading, buffered);
  return true;
}

void TcpChannel::count_payload(uint64_t message, size_t bytes) {
  Receiving& receiving = recvs_[message - recvs_completed_];
  receiving.received += bytes;
  receiving.expected -= bytes;
  while (!recvs_.empty() && recvs_.front().header_seen &&
         recvs_.front().received == recvs_.front().transfer.bytes) {
    recvs_.pop();
    ++recvs_completed_;
  }
}

// The peer has closed this stream. What it sent over the others before may still be on its way, so
// the channel ends with the last of them, or at once where a message was cut.
void TcpChannel::end_stream(Stream& stream) {
  stream.ended = true;
  const bool all =
      std::all_of(streams_.begin(), streams_.end(), [](const auto& one) { return one->ended; });
  if (all || !stream.reader.empty()) fail(closed("by that rank, or it is gone"));
}

bool TcpChannel::on_events(Stream& stream, uint32_t events, size_t* budget) {
  if (!status_.ok()) return false;
  bool moved = false;
  if ((events & (EPOLLIN | kGone)) != 0) {
    moved = read(stream, budget, true);
    // Readable still, but its message is not posted: look away until it is.
    stream.stalled = stream.parked && !moved;
    stream.ending = stream.stalled && (events & kGone) != 0;
  }
  if ((events & EPOLLOUT) != 0 && status_.ok()) {
    stream.full = false;
    moved |= write_all(budget);
  }
  if (status_.ok()) watch(stream);
  return moved;
}

// Tells epoll what `stream` waits for, where that has changed.
void TcpChannel::watch(Stream& stream) {
  uint32_t wanted = EPOLLRDHUP;
  if (!stream.stalled) wanted |= EPOLLIN;
  if (stream.writer.active() || has_unassigned()) wanted |= EPOLLOUT;
  // Epoll reports a closed connection without end. With nothing to read from it, or nowhere to put
  // that, it is not watched.
  if (stream.ended || (stream.ending && stream.stalled)) wanted = 0;
  if (wanted == stream.watched) return;
  epoll_event event{};
  event.events = wanted;
  event.data.ptr = static_cast<Watched*>(&stream);
  const int operation = wanted == 0           ? EPOLL_CTL_DEL
                        : stream.watched == 0 ? EPOLL_CTL_ADD
                                              : EPOLL_CTL_MOD;
  if (::epoll_ctl(poller_->epoll.get(), operation, stream.wire.fd(), &event) != 0)
    return fail(system_error(format("watching the connection to rank %d", peer_), errno));
  poller_->watched.fetch_add((wanted != 0 ? 1 : 0) - (stream.watched != 0 ? 1 : 0));
  stream.watched = wanted;
}

void TcpChannel::watch_all() {
  for (size_t i = 0; i < streams_.size() && status_.ok(); ++i) watch(*streams_[i]);
}

Status TcpChannel::closed(const std::string& why) const {
  return error(Code::RemoteError, "connection to rank %d closed (%s)", peer_, why.c_str());
}

// Keeps the first failure. A broken channel is not watched, or it would wake the engine without
// end.
void TcpChannel::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
  for (const auto& stream : streams_) forget(*stream);
}

void TcpChannel::forget(Stream& stream) {
  if (stream.watched == 0) return;
  ::epoll_ctl(poller_->epoll.get(), EPOLL_CTL_DEL, stream.wire.fd(), nullptr);
  poller_->watched.fetch_sub(1);
  stream.watched = 0;
}

}  // namespace hetccl::transport::tcp
