#include "transport/ncclnet/channel.h"

#include <chrono>
#include <cstring>
#include <utility>

namespace hetccl::transport::ncclnet {

NetChannel::NetChannel(int peer, size_t device, net::Wire wire, std::shared_ptr<Core> core)
    : peer_(peer),
      device_(device),
      core_(std::move(core)),
      chunk_bytes_(route().chunk_bytes()),
      stream_(std::move(wire)),
      slots_(kCredits * kMostWhole) {}

Result<std::unique_ptr<NetChannel>> NetChannel::create(int peer, size_t device, net::Wire wire,
                                                       std::shared_ptr<Core> core) {
  std::unique_ptr<NetChannel> made(new NetChannel(peer, device, std::move(wire), std::move(core)));
  HETCCL_TRY(made->prepare());
  return made;
}

Status NetChannel::prepare() {
  const std::lock_guard lock(core_->mutex);
  HETCCL_ASSIGN(pair_, core_->plugin()->take_pair(core_->devices()[device_]));
  HETCCL_TRY(core_->add(*this, stream_.fd()));
  watched_ = true;
  closed_ = false;
  read();  // bytes of the peer may wait in this process already, and no poll would show them
  return {};
}

NetChannel::~NetChannel() {
  close();
}

void NetChannel::close() {
  const std::lock_guard lock(core_->mutex);
  if (std::exchange(closed_, true)) return;
  core_->remove(*this);
  if (watched_) core_->unwatch(stream_.fd());
  watched_ = false;
  keep(error(ErrorCode::Aborted, "the channel to rank %d was closed by this rank", peer_));
  put({FrameKind::Goodbye, std::exchange(owed_, 0), chunks_sent_});
  stream_.write();  // if the peer has gone, it needs no goodbye
  out_.reset();
  in_.reset();
  loopback_.reset();
  pair_.reset();
  stream_.close();
  sends_.clear();
  recvs_.clear();
}

// --- the control connection

void NetChannel::put(const Frame& frame) {
  uint8_t bytes[kFrameBytes];
  encode(frame, bytes);
  stream_.put(bytes, sizeof bytes);
}

void NetChannel::write() {
  stream_.write();
  if (watched_ && stream_.has_unwritten() != watches_writes_) {
    watches_writes_ = !watches_writes_;
    core_->watch_writes(*this, stream_.fd(), watches_writes_);
  }
}

void NetChannel::on_event() {
  write();
  read();
}

void NetChannel::read() {
  bool more = true;
  while (more && !ended()) {
    more = stream_.read();
    take_all();
  }
  if (!watched_ || (!ended() && !stream_.ended())) return;
  core_->unwatch(stream_.fd());
  watched_ = false;
}

void NetChannel::take_all() {
  for (bool taken = true; taken && !ended();) {
    const auto one = take();
    keep(one.status());
    taken = one.ok() && one.value();
  }
}

// Takes the next frame. Returns whether it had arrived completely.
Result<bool> NetChannel::take() {
  const auto in = stream_.in();
  if (in.size() < kFrameBytes) return false;
  const auto read = decode_frame(in.data());
  if (!read.ok()) return defect(read.status().message());
  const Frame& frame = read.value();
  if (frame.kind == FrameKind::Whole || frame.kind == FrameKind::Long) {
    HETCCL_ASSIGN(const bool taken, take_message(frame));
    if (!taken) return false;
  } else if (frame.kind == FrameKind::Listen) {
    HETCCL_ASSIGN(const bool taken, take_hello());
    if (!taken) return false;
  } else {
    stream_.take(kFrameBytes);
  }
  HETCCL_TRY(handle(frame));
  return true;
}

Result<bool> NetChannel::take_message(const Frame& frame) {
  const auto in = stream_.in();
  constexpr size_t kPrefix = kFrameBytes + kHeaderBytes;
  if (in.size() < kPrefix) return false;
  const auto header = decode_header(frame, in.data() + kFrameBytes);
  if (!header.ok()) return defect(header.status().message());
  const size_t payload = frame.kind == FrameKind::Whole ? header.value().total : 0;
  if (in.size() < kPrefix + payload) return false;
  if (inbox_.size() >= kCredits) return defect("it sends more messages than it may");
  const uint32_t slot = next_slot_++ % kCredits;
  std::memcpy(slot_at(slot), in.data() + kPrefix, payload);
  inbox_.push({header.value(), frame.kind == FrameKind::Whole, slot, frame.value});
  stream_.take(kPrefix + payload);
  return true;
}

Result<bool> NetChannel::take_hello() {
  const auto in = stream_.in();
  if (in.size() < kFrameBytes + kHelloBytes) return false;
  const auto hello = decode_hello(in.data() + kFrameBytes);
  if (!hello.ok()) return defect(hello.status().message());
  if (out_ != nullptr) return defect("it listens twice");
  out_ = Link::connect(route(), hello.value(), deadline());
  stream_.take(kFrameBytes + kHelloBytes);
  return true;
}

Status NetChannel::handle(const Frame& frame) {
  credits_ += frame.credits;
  if (credits_ > kCredits) return defect("it returns too many credits");
  if (frame.kind == FrameKind::Grant) return accept_grant(frame.value);
  if (frame.kind == FrameKind::Goodbye) peer_chunks_sent_ = frame.value;
  return {};
}

// Checks a grant. Messages are granted in order.
Status NetChannel::accept_grant(uint64_t message) {
  const uint64_t index = message - sends_completed_;
  const bool known = message >= sends_completed_ && index < begun_;
  const bool again = known && (sends_[index].begun > 0 ||
                               (!granted_.empty() && message <= granted_[granted_.size() - 1]));
  if (out_ == nullptr || !known || again || sends_[index].is_whole())
    return defect("it grants a message that it was not sent");
  granted_.push(message);
  return {};
}

// --- the end

bool NetChannel::is_busy() const {
  if (ended() || !why_broken_.ok()) return false;
  return (out_ != nullptr && (out_->is_busy() || !granted_.empty())) ||
         (in_ != nullptr && (in_->is_busy() || !receiving_.empty())) || !copies_.empty();
}

void NetChannel::forget(uint64_t number) {
  for (Link* link : {out_.get(), in_.get()})
    if (link != nullptr) link->forget(number);
  if (loopback_ != nullptr) loopback_->forget(number);
}

bool NetChannel::progress(TimePoint now) {
  if (ended()) return false;
  const bool moved = advance(now);
  look_for_end(moved, now);
  return moved || ended();
}

// Delivers the messages that the peer sent before it closed, then fails the channel. If nothing is
// posted, a short message still waits for its receive; a long message never completes.
void NetChannel::look_for_end(bool moved, TimePoint now) {
  if (moved) gives_up_.reset();
  if (ended() || moved) return;
  if (!why_broken_.ok()) read();
  if (ended()) return;
  if (!stream_.ended()) return keep(why_broken_);
  if (awaits_chunks(now) || (why_broken_.ok() && !copies_.empty())) return;
  const bool cut = !recvs_.empty() || !sends_.empty() || inbox_.empty() || !inbox_.front().whole;
  if (cut) keep(closed());
}

// Returns whether chunks are still due that the peer, as it closed, said it had sent. Bounded in
// time, because the peer may be wrong.
bool NetChannel::awaits_chunks(TimePoint now) {
  const bool due = why_broken_.ok() && chunks_received_ < peer_chunks_sent_ && in_ != nullptr &&
                   (in_->is_busy() || !receiving_.empty());
  if (!due) return false;
  if (!gives_up_) gives_up_ = now + std::chrono::milliseconds(core_->config().liveness_ms);
  return now < *gives_up_;
}

Route NetChannel::route() const {
  return {format("rank %d", peer_), core_->plugin(), core_->devices()[device_], &core_->registered};
}

TimePoint NetChannel::deadline() const {
  return steady_clock().now() + std::chrono::milliseconds(core_->config().init_timeout_ms);
}

std::optional<MessageInfo> NetChannel::incoming() {
  if (ended() || !recvs_.empty() || inbox_.empty()) return std::nullopt;
  return inbox_.front().header.info;
}

void NetChannel::keep(const Status& status) {
  if (status_.ok() && !status.ok()) status_ = status;
}

void NetChannel::keep_broken(const Status& status) {
  if (why_broken_.ok() && !status.ok()) why_broken_ = status;
}

Status NetChannel::closed() const {
  return error(ErrorCode::RemoteError, "connection to rank %d closed (by that rank)", peer_);
}

Status NetChannel::defect(const std::string& what) const {
  return error(ErrorCode::RemoteError, "rank %d broke the protocol of its ncclnet channel: %s",
               peer_, what.c_str());
}

}  // namespace hetccl::transport::ncclnet
