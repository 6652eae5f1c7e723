#include "bootstrap/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>

namespace hetccl::bootstrap {

namespace {

constexpr size_t kReadBytes = 65'536;
constexpr int kReadsPerTurn = 16;  // then other connections get their turn
constexpr std::chrono::seconds kFinishTime(1);

}  // namespace

std::span<const uint8_t> Connection::Outgoing::rest() const {
  if (!shared.bytes) return std::span(own).subspan(done);
  return std::span(*shared.bytes).subspan(shared.begin + done, shared.end - shared.begin - done);
}

Connection::Connection(Loop& loop, net::Wire wire, Owner* owner, size_t max_payload)
    : loop_(loop),
      wire_(std::move(wire)),
      owner_(owner),
      max_payload_(max_payload),
      last_received_(loop_.now()),
      last_sent_(last_received_),
      silence_(last_received_) {}

Result<std::shared_ptr<Connection>> Connection::open(Loop& loop, net::Wire wire, Owner* owner,
                                                     size_t max_payload) {
  std::shared_ptr<Connection> made(new Connection(loop, std::move(wire), owner, max_payload));
  made->events_ = EPOLLIN;
  HETCCL_ASSIGN(made->watch_, loop.watch(made->wire_.fd(), made->events_,
                                         [made](uint32_t events) { made->on_ready(events); }));
  return made;
}

void Connection::hand_over(Owner* owner, size_t max_payload) {
  owner_ = owner;
  max_payload_ = max_payload;
}

void Connection::send(Bytes frame) {
  send(std::move(frame), {});
}

void Connection::send(Bytes frame_head, SharedBytes rest) {
  if (!is_open() || finishing_) return;
  outgoing_.push_back({std::move(frame_head), {}});
  if (rest.begin < rest.end) outgoing_.push_back({{}, std::move(rest)});
  last_sent_ = loop_.now();
  flush();
}

bool Connection::send_note(std::shared_ptr<const Bytes> frame) {
  if (!is_open() || finishing_) return true;
  const size_t size = frame->size();
  const size_t cost = size + sizeof(Outgoing);
  if (queued_notes_ + cost > kMaxQueuedNotes) return false;
  queued_notes_ += cost;
  outgoing_.push_back({{}, {std::move(frame), 0, size}, 0, cost});
  last_sent_ = loop_.now();
  flush();
  return true;
}

void Connection::clear_outgoing() {
  outgoing_.clear();
  queued_notes_ = 0;
}

void Connection::finish() {
  if (!is_open() || finishing_) return;
  owner_ = nullptr;
  finishing_ = true;
  finish_timer_ = loop_.at(loop_.now() + kFinishTime, [self = shared_from_this()] {
    self->finish_timer_.reset();
    self->close();
  });
  flush();
}

void Connection::close() {
  owner_ = nullptr;
  if (finish_timer_) loop_.cancel(*finish_timer_);
  finish_timer_.reset();
  if (!is_open()) return;
  const auto self = shared_from_this();  // the watch holds the loop's reference
  loop_.unwatch(watch_, wire_.fd());
  wire_.reset();
  clear_outgoing();
}

void Connection::abandon(const Owner* owner) {
  if (owner_ == owner) close();
}

bool Connection::is_silent(Duration period, Duration limit) {
  silence_.check(loop_.now(), last_received_, period);
  if (silence_.length() < limit) return false;
  const auto self = shared_from_this();
  const TimePoint heard = last_received_;
  if (is_open()) read();
  if (last_received_ == heard) return is_open();
  silence_.forget();
  return false;
}

void Connection::on_ready(uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush();
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0 && is_open()) read();
}

void Connection::read() {
  std::array<uint8_t, kReadBytes> buffer;
  const iovec into{buffer.data(), buffer.size()};
  for (int turn = 0; is_open() && (turn < kReadsPerTurn || wire_.pending()); ++turn) {
    size_t n = 0;
    const net::Io result =
        turn < kReadsPerTurn ? wire_.read({&into, 1}, &n) : wire_.read_pending({&into, 1}, &n);
    if (result == net::Io::Blocked) return;
    if (result == net::Io::Closed) return broken("connection closed");
    if (result == net::Io::Failed) return broken("connection closed: " + wire_.failure());
    last_received_ = loop_.now();
    if (finishing_) continue;
    incoming_.insert(incoming_.end(), buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(n));
    parse();
  }
}

void Connection::parse() {
  size_t at = 0;
  while (owner_ && incoming_.size() - at >= kHeaderBytes) {
    const std::optional<Header> header = decode_header(incoming_.data() + at);
    if (!header || header->payload_bytes > max_payload_) {
      return broken("it sent a malformed frame");
    }
    const size_t end = at + kHeaderBytes + header->payload_bytes;
    if (incoming_.size() < end) break;
    owner_->on_frame(*header,
                     std::span(incoming_).subspan(at + kHeaderBytes, header->payload_bytes));
    at = end;
  }
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<ptrdiff_t>(at));
  if (incoming_.empty() && incoming_.capacity() > kReadBytes) incoming_.shrink_to_fit();
}

void Connection::flush() {
  while (is_open() && !outgoing_.empty()) {
    Outgoing& front = outgoing_.front();
    const std::span<const uint8_t> rest = front.rest();
    const iovec from{const_cast<uint8_t*>(rest.data()), rest.size()};
    size_t n = 0;
    const net::Io result = wire_.write({&from, 1}, &n, outgoing_.size() > 1);
    if (result == net::Io::Blocked) break;
    if (result == net::Io::Failed) {
      // The peer is gone, but its last messages, which give the reason, may be unread. So let the
      // reading side find the end.
      clear_outgoing();
      break;
    }
    front.done += n;
    if (n < rest.size()) continue;
    queued_notes_ -= front.note_bytes;
    outgoing_.pop_front();
  }
  if (is_open() && finishing_ && outgoing_.empty()) ::shutdown(wire_.fd(), SHUT_WR);
  update_events();
}

void Connection::update_events() {
  if (!is_open()) return;
  const uint32_t wanted = outgoing_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  if (wanted == events_) return;
  events_ = wanted;
  loop_.change(watch_, wire_.fd(), events_);
}

void Connection::broken(const std::string& why) {
  Owner* owner = owner_;
  const auto self = shared_from_this();
  close();
  if (owner) owner->on_closed(why);
}

}  // namespace hetccl::bootstrap
