#include "transport/tcp/tcp_channel.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <map>

namespace hetccl::transport::tcp {

namespace {

// Large enough to make headers and system calls negligible, small enough to give every stream a few
// pieces.
constexpr size_t kPieceBytes = 256 << 10;
// If NICs differ, a piece on the slowest must not outlast the others' share: a piece takes one
// millisecond there, but is not smaller than this.
constexpr size_t kLeastPieceBytes = 64 << 10;
// Consecutive pieces of at least this size rotate over the streams; smaller ones stay on one
// stream, whose TCP window is warm.
constexpr size_t kTurnBytes = 32 << 10;
// The bytes that a post may move before it returns.
constexpr size_t kPostBudget = 1 << 20;

constexpr uint32_t kGone = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

size_t piece_bytes_for(const std::vector<CardOf>& cards) {
  std::map<std::string, int64_t> mbps;
  for (const CardOf& card : cards) mbps[card.name] = card.mbps;
  if (mbps.size() < 2) return kPieceBytes;
  const auto slower = [](const auto& a, const auto& b) { return a.second < b.second; };
  const int64_t slowest = std::min_element(mbps.begin(), mbps.end(), slower)->second;
  if (slowest == 0) return kPieceBytes;
  constexpr int64_t kBytesPerMillisecond = 1'000'000 / 8 / 1000;  // at 1 Mbit/s
  return std::clamp(static_cast<size_t>(slowest * kBytesPerMillisecond), kLeastPieceBytes,
                    kPieceBytes);
}

bool admits(const Parcel& transfer, size_t lane) {
  return transfer.streams == 0 || lane < transfer.streams;
}

void spend(size_t* budget, size_t bytes) {
  *budget -= std::min(*budget, bytes);
}

}  // namespace

bool Stream::on_events(uint32_t events, size_t* budget) {
  return share.channel.on_events(*this, events, budget);
}

bool Share::on_kick(size_t* budget) {
  return channel.on_kick(*this, budget);
}

TcpChannel::TcpChannel(int peer, std::vector<net::Wire> wires, const std::vector<CardOf>& cards,
                       std::shared_ptr<Movers> movers)
    : peer_(peer),
      piece_bytes_(piece_bytes_for(cards)),
      movers_(std::move(movers)),
      out_of_memory_(
          error(ErrorCode::SystemError, "no memory to go on with data of rank %d", peer)),
      streams_left_(static_cast<int>(wires.size())) {
  const size_t n = std::min(movers_->count(), wires.size());
  for (size_t i = 0; i < n; ++i)
    shares_.push_back(std::make_unique<Share>(*this, movers_->poller(i)));
  std::map<std::string, size_t> lanes;  // by NIC
  for (size_t i = 0; i < wires.size(); ++i) {
    Share& share = *shares_[i % n];
    const std::string card = cards.empty() ? "" : cards[i].name;
    const size_t lane = lanes[card]++;
    n_lanes_ = std::max(n_lanes_, lane + 1);
    share.lane = share.streams.empty() ? lane : std::min(share.lane, lane);
    share.streams.push_back(std::make_unique<Stream>(std::move(wires[i]), share, card, lane));
  }
}

Result<std::unique_ptr<TcpChannel>> TcpChannel::create(int peer, std::vector<net::Wire> wires,
                                                       const std::vector<CardOf>& cards,
                                                       std::shared_ptr<Movers> movers) {
  HETCCL_TRY(movers->start());
  std::unique_ptr<TcpChannel> channel(
      new TcpChannel(peer, std::move(wires), cards, std::move(movers)));
  for (const auto& share : channel->shares_) {
    const Poller::Pause pause(share->poller);
    channel->watch_all(*share);
  }
  {
    const Poller::Pause pause(channel->shares_.front()->poller);
    channel->movers_->paths().add(*channel);
  }
  if (channel->failed()) return channel->status_;
  return channel;
}

TcpChannel::~TcpChannel() {
  close();
}

void TcpChannel::close() {
  record(error(ErrorCode::Aborted, "the channel to rank %d was closed by this rank", peer_));
  for (const auto& share : shares_) {
    const Poller::Pause pause(share->poller);
    share->poller.forget(*share);
    forget(*share);
    if (share == shares_.front()) movers_->paths().remove(*this);
  }
  shares_.clear();
  sends_.clear();
  recvs_.clear();
}

void TcpChannel::post_send(const Parcel& transfer) {
  if (failed()) return;
  std::unique_lock lock(mutex_);
  const bool idle = !has_unassigned();
  sends_.push({transfer});
  share_out(transfer, idle);
  lock.unlock();
  size_t budget = shares_.size() > 1 ? kPieceBytes : kPostBudget;
  if (idle) write_all(*shares_.front(), &budget);
}

// Kicks a mover for each piece that the driver does not write at once.
void TcpChannel::share_out(const Parcel& transfer, bool idle) {
  size_t pieces = (transfer.bytes + piece_bytes_ - 1) / piece_bytes_;
  if (idle) pieces -= std::min<size_t>(pieces, 1);
  const size_t others = shares_.size() - 1;
  for (size_t i = 0; i < others && pieces > 0; ++i) {
    Share& share = *shares_[1 + next_share_];
    next_share_ = (next_share_ + 1) % others;
    if (!share.idle || !admits(transfer, share.lane)) continue;
    share.idle = false;
    share.poller.kick(share);
    --pieces;
  }
}

// Returns whether streams of that lane may write now.
bool TcpChannel::may_write(size_t lane) {
  return has_unassigned() && admits(sends_[unassigned_].transfer, lane);
}

bool TcpChannel::assign(Stream& stream) {
  std::lock_guard lock(mutex_);
  if (!may_write(stream.lane)) return false;
  Sending& sending = sends_[unassigned_];
  const Parcel& transfer = sending.transfer;
  Header header;
  header.number = sends_completed_ + unassigned_;
  header.offset = sending.assigned;
  header.bytes = std::min(piece_bytes_, transfer.bytes - sending.assigned);
  header.total = transfer.bytes;
  header.info = transfer.info;
  stream.writer.start(header, Extent(transfer, sending.assigned, header.bytes));
  sending.assigned += header.bytes;
  if (sending.assigned < transfer.bytes) return true;
  ++unassigned_;
  // Shares that were limited by this message's `streams` have gone idle, so kick them.
  if (transfer.streams > 0 && has_unassigned()) share_out(sends_[unassigned_].transfer, true);
  return true;
}

// Writes to the share's streams in turn until nothing is left, all are full, or the budget is
// spent.
bool TcpChannel::write_all(Share& share, size_t* budget) {
  bool moved = false;
  size_t refused = 0;  // consecutive streams that took nothing
  while (refused < share.streams.size() && *budget > 0 && !failed()) {
    Stream& stream = *share.streams[share.next];
    if (stream.full || (!stream.writer.active() && !assign(stream))) {
      share.next = (share.next + 1) % share.streams.size();
      ++refused;
      continue;
    }
    const size_t before = *budget;
    if (write(stream, budget) == Io::Failed) return true;
    moved |= *budget < before;
    refused = 0;
    if (before - *budget >= kTurnBytes || stream.full)
      share.next = (share.next + 1) % share.streams.size();
  }
  {
    std::lock_guard lock(mutex_);
    share.unfinished = may_write(share.lane);
    share.idle = !share.unfinished;
  }
  watch_all(share);
  return moved;
}

Io TcpChannel::write(Stream& stream, size_t* budget) {
  size_t written = 0;
  const uint64_t message = stream.writer.message();
  const size_t header_left = stream.writer.header_left();
  const Io result = stream.writer.write(stream.wire, &written);
  if (result == Io::Failed) {
    fail(stream.share, closed(stream, stream.wire.failure()));
    return result;
  }
  stream.full = result == Io::Blocked;
  spend(budget, written);
  movers_->bytes_sent.fetch_add(written, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  uint64_t completed = sends_completed_.load(std::memory_order_relaxed);
  Sending& sending = sends_[message - completed];
  sending.written += written - std::min(written, header_left);
  sending.last_written |= result == Io::Moved;
  const uint64_t before = completed;
  for (; !sends_.empty() && sends_.front().last_written &&
         sends_.front().written == sends_.front().transfer.bytes;
       ++completed) {
    sends_.pop();
    --unassigned_;
  }
  if (completed == before) return result;
  sends_completed_.store(completed, std::memory_order_release);
  lock.unlock();
  wake_engine(stream.share);
  return result;
}

void TcpChannel::post_recv(const Parcel& transfer) {
  if (failed()) return;
  {
    std::lock_guard lock(mutex_);
    recvs_.push({transfer});
    next_.reset();
    for (size_t i = 1; i < shares_.size(); ++i) {
      Share& share = *shares_[i];
      if (!share.waiting) continue;
      share.waiting = false;
      share.poller.kick(share);
    }
  }
  size_t budget = kPostBudget;
  resume(*shares_.front(), &budget);
}

std::optional<MessageInfo> TcpChannel::incoming() {
  if (failed()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return recvs_.empty() ? next_ : std::nullopt;
}

// Resumes streams that waited for a receive to be posted.
bool TcpChannel::resume(Share& share, size_t* budget) {
  bool moved = false;
  for (size_t i = 0; i < share.streams.size() && !failed(); ++i) {
    Stream& stream = *share.streams[i];
    if (!stream.parked) continue;
    moved |= read(stream, budget, false);
    const bool waits = stream.reader.in_payload() || stream.wire.pending();
    if (!failed() && waits && !stream.parked) moved |= read(stream, budget, true);
  }
  return moved;
}

bool TcpChannel::on_kick(Share& share, size_t* budget) {
  try {
    return handle_kick(share, budget);
  } catch (...) {
    fail_without_memory(share);
    return true;
  }
}

bool TcpChannel::handle_kick(Share& share, size_t* budget) {
  if (!failed()) {
    const bool moved = resume(share, budget);
    return write_all(share, budget) || moved;
  }
  forget(share);
  return false;
}

// Takes buffered data, then (with `from_socket`) reads until the socket is empty, the next message
// has no receive, or the budget is spent.
bool TcpChannel::read(Stream& stream, size_t* budget, bool from_socket) {
  bool moved = false;
  bool more = from_socket;
  while (!failed()) {
    while (!stream.reader.in_payload() && stream.reader.has_header()) {
      bool news = false;
      if (!begin_message(stream, &news)) {
        if (!failed()) watch(stream);
        return moved || news;
      }
      moved = true;
    }
    if (!more || stream.ended) break;
    // Take data that has left the socket even beyond the budget, because no event would announce
    // it.
    if (*budget == 0 && !stream.wire.pending()) break;
    size_t payload = 0;
    const Io result = stream.reader.read(stream.wire, *budget > 0, &payload, &more);
    if (result == Io::Blocked) break;
    moved = true;
    if (result == Io::Failed) {
      fail(stream.share, closed(stream, stream.wire.failure()));
    } else if (result == Io::Closed) {
      end_stream(stream);
    } else {
      spend(budget, payload + 1);
      std::unique_lock lock(mutex_);
      const bool complete = payload > 0 && count_payload(stream.reading, payload);
      lock.unlock();
      if (complete) wake_engine(stream.share);
    }
  }
  if (!failed()) watch(stream);
  return moved;
}

// Returns false if the message has no receive yet (the stream stalls; `*news`: it is the next
// message, and was unknown), or if the channel has failed.
bool TcpChannel::begin_message(Stream& stream, bool* news) {
  if (!stream.parked) {
    auto header = transport::decode(stream.reader.header());
    if (!header.ok()) {
      fail(stream.share, header.status().with(format("from rank %d", peer_)));
      return false;
    }
    stream.parked = std::move(header).value();
  }
  const Header& header = *stream.parked;
  std::unique_lock lock(mutex_);
  const uint64_t completed = recvs_completed_.load(std::memory_order_relaxed);
  if (header.number >= completed && header.number - completed >= recvs_.size()) {
    stream.share.waiting = true;
    *news = header.number - completed == recvs_.size() && !next_;
    if (*news) next_ = header.info;
    lock.unlock();
    if (*news) wake_engine(stream.share);
    return false;
  }
  auto buffered = header.number < completed
                      ? error(ErrorCode::RemoteError, "rank %d sent a message twice", peer_)
                      : begin_payload(stream, header);
  const bool complete = buffered.ok() && count_payload(header.number, *buffered);
  lock.unlock();
  if (!buffered.ok()) {
    fail(stream.share, buffered.status());
    return false;
  }
  if (complete) wake_engine(stream.share);
  stream.parked.reset();
  stream.stalled = false;
  return true;
}

Result<size_t> TcpChannel::begin_payload(Stream& stream, const Header& header) {
  Receiving& receiving = recvs_[header.number - recvs_completed_.load(std::memory_order_relaxed)];
  HETCCL_TRY(check(header, receiving.transfer, peer_));
  if (receiving.received + receiving.expected + header.bytes > header.total)
    return error(ErrorCode::RemoteError, "rank %d sent a piece of a message twice", peer_);
  stream.reading = header.number;
  receiving.header_seen = true;
  receiving.expected += header.bytes;
  return stream.reader.begin_payload(Extent(receiving.transfer, header.offset, header.bytes));
}

bool TcpChannel::count_payload(uint64_t message, size_t bytes) {
  const uint64_t before = recvs_completed_.load(std::memory_order_relaxed);
  Receiving& receiving = recvs_[message - before];
  receiving.received += bytes;
  receiving.expected -= bytes;
  uint64_t completed = before;
  for (; !recvs_.empty() && recvs_.front().header_seen &&
         recvs_.front().received == recvs_.front().transfer.bytes;
       ++completed)
    recvs_.pop();
  recvs_completed_.store(completed, std::memory_order_release);
  return completed != before;
}

// The peer has closed this stream. Earlier data on its other streams may still be on its way, so
// the channel ends with the last stream, or at once if a message was cut.
void TcpChannel::end_stream(Stream& stream) {
  stream.ended = true;
  const bool last = streams_left_.fetch_sub(1) == 1;
  if (last || !stream.reader.empty())
    fail(stream.share, closed(stream, "by that rank, or it is gone"));
}

bool TcpChannel::on_events(Stream& stream, uint32_t events, size_t* budget) {
  try {
    return handle_events(stream, events, budget);
  } catch (...) {
    fail_without_memory(stream.share);
    return true;
  }
}

bool TcpChannel::handle_events(Stream& stream, uint32_t events, size_t* budget) {
  if (failed()) {  // set by another thread
    forget(stream.share);
    return false;
  }
  bool moved = false;
  if ((events & (EPOLLIN | kGone)) != 0) {
    moved = read(stream, budget, true);
    // Stop watching a readable stream until a receive for its message is posted.
    stream.stalled = stream.parked && !moved;
    stream.ending = stream.stalled && (events & kGone) != 0;
  }
  if ((events & EPOLLOUT) != 0 && !failed()) {
    stream.full = false;
    moved |= write_all(stream.share, budget);
  }
  if (!failed()) watch(stream);
  return moved;
}

// Updates the events that epoll watches for `stream`, if they have changed.
void TcpChannel::watch(Stream& stream) {
  uint32_t wanted = EPOLLRDHUP;
  if (!stream.stalled) wanted |= EPOLLIN;
  if (stream.writer.active() || stream.share.unfinished) wanted |= EPOLLOUT;
  // Epoll reports a closed connection for ever. Do not watch it if there is nothing to read, or no
  // place for the data.
  if (stream.ended || (stream.ending && stream.stalled)) wanted = 0;
  if (wanted == stream.watched) return;
  if (!stream.share.poller.watch(stream.wire.fd(), stream.watched, wanted, stream)) {
    const int why = errno;
    return fail(stream.share,
                system_error(format("watching the connection to rank %d", peer_), why));
  }
  stream.watched = wanted;
}

void TcpChannel::watch_all(Share& share) {
  for (size_t i = 0; i < share.streams.size() && !failed(); ++i) watch(*share.streams[i]);
}

// Wakes the engine, which does not see the movers' work while it sleeps.
void TcpChannel::wake_engine(const Share& share) {
  if (&share != shares_.front().get()) movers_->engine().ring();
}

Status TcpChannel::closed(const Stream& stream, const std::string& why) const {
  return error(ErrorCode::RemoteError, "%s closed (%s)", text_of(stream).c_str(), why.c_str());
}

std::string TcpChannel::text_of(const Stream& stream) const {
  const std::string text = format("connection to rank %d", peer_);
  return stream.card.empty() ? text : text + " by network card " + stream.card;
}

// Keeps the first failure.
void TcpChannel::record(Status status) {
  std::lock_guard lock(mutex_);
  if (failed()) return;
  status_ = std::move(status);
  failed_.store(true, std::memory_order_release);
}

void TcpChannel::fail_without_memory(Share& share) {
  {
    std::lock_guard lock(mutex_);
    if (!failed()) status_ = std::move(out_of_memory_);
    failed_.store(true, std::memory_order_release);
  }
  forget(share);
  wake_engine(share);
}

void TcpChannel::check_path(TimePoint now, Duration limit) {
  for (const auto& share : shares_) {
    for (const auto& stream : share->streams) {
      if (failed() || stream->path.silence(stream->wire.fd(), now) < limit) continue;
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
      fail(*shares_.front(),
           error(ErrorCode::RemoteError,
                 "%s is cut: its host has acknowledged nothing for %lld ms, though data is on its "
                 "way; check the network between the two hosts%s",
                 text_of(*stream).c_str(), static_cast<long long>(ms),
                 stream->card.empty() ? ""
                                      : ", and that card and its cable at both ends; "
                                        "HETCCL_SOCKET_IFNAME leaves it out"));
    }
  }
}

// Stops watching a broken channel, which would wake its threads for ever. Other threads notice at
// their next event.
void TcpChannel::fail(Share& share, Status status) {
  record(std::move(status));
  forget(share);
  wake_engine(share);
}

void TcpChannel::forget(Share& share) {
  for (const auto& stream : share.streams) {
    if (stream->watched == 0) continue;
    share.poller.watch(stream->wire.fd(), stream->watched, 0, *stream);
    stream->watched = 0;
  }
}

}  // namespace hetccl::transport::tcp
