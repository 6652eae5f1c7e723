#include "bootstrap/client.h"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "bootstrap/compact.h"

namespace hetccl::bootstrap {

namespace {

using std::chrono::milliseconds;

constexpr size_t kPartHeader = sizeof(uint32_t);

Status shut_down() {
  return error(ErrorCode::Aborted, "the control plane has shut down");
}

Status left_status() {
  return error(ErrorCode::InvalidUsage, "this rank has left the communicator");
}

}  // namespace

Client::Client(std::shared_ptr<Loop> loop, std::shared_ptr<Clients> clients, Invitation invitation,
               Options options)
    : loop_(std::move(loop)),
      clients_(std::move(clients)),
      invitation_(std::move(invitation)),
      options_(std::move(options)) {}

// The control thread uses this object until it has left, so wait for memory if there is none.
Client::~Client() {
  for (;;) {
    try {
      leave(0);
      return;
    } catch (...) {
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
}

// --- On the caller's thread ---

Status Client::join(net::Wire connected, TimePoint deadline) {
  const JoinOptions& mine = options_.join;
  const TimePoint now = steady_clock().now();
  const auto remaining = std::chrono::ceil<milliseconds>(deadline - now);
  Bytes frame = encode(Join{mine.rank, mine.n_ranks, mine.timeout_ms, remaining.count(),
                            options_.liveness_ms, options_.service, mine.description});
  auto wire = std::make_shared<net::Wire>(std::move(connected));
  const bool posted = loop_->post([this, wire, frame = std::move(frame)]() mutable {
    connect(std::move(*wire), std::move(frame));
  });
  if (!posted) return shut_down();
  // Wait a little longer than the coordinator, whose own verdict names the missing ranks.
  std::unique_lock lock(mutex_);
  return wait(lock, deadline + milliseconds(options_.liveness_ms), joined_);
}

Status Client::wait(std::unique_lock<std::mutex>& lock, TimePoint deadline, const bool& arrived) {
  changed_.wait_until(lock, deadline, [&] { return arrived || left_ || !ended_.ok(); });
  if (arrived) return {};
  if (!ended_.ok()) return ended_;
  if (left_) return left_status();
  // The coordinator may still act on what this rank sent, so this rank's state is unknown.
  ended_ = error(ErrorCode::Timeout, "the coordinator did not answer in time");
  return ended_;
}

Status Client::begin_gather() {
  if (!ended_.ok()) return ended_;
  if (left_) return left_status();
  if (gather_.active) {
    return error(ErrorCode::InvalidUsage, "another exchange of this rank is in progress");
  }
  gather_.active = true;
  gather_.done = false;
  gather_.received.clear();
  return {};
}

Result<std::vector<Bytes>> Client::all_gather(const Bytes& mine, int64_t timeout_ms) {
  if (mine.size() > kMaxContribution) {
    return error(ErrorCode::InvalidArgument, "%zu bytes for an exchange: at most %zu are possible",
                 mine.size(), kMaxContribution);
  }
  std::unique_lock lock(mutex_);
  HETCCL_TRY(begin_gather());
  Bytes frame = encode(Contribution{gather_.sequence, timeout_ms, mine});
  const bool posted = loop_->post([this, frame = std::move(frame)]() mutable {
    if (connection_) connection_->send(std::move(frame));
  });
  const auto patience = bounded_wait(timeout_ms) + milliseconds(options_.liveness_ms);
  const Status status =
      posted ? wait(lock, steady_clock().now() + patience, gather_.done) : shut_down();
  gather_.active = false;
  if (!status.ok()) return status;
  ++gather_.sequence;
  Bytes compacted = std::exchange(gather_.received, {});
  const size_t expanded = gather_.expanded;
  lock.unlock();
  const auto concatenation = expand(std::move(compacted), expanded);
  auto parts = concatenation ? split(*concatenation, static_cast<size_t>(n_ranks())) : std::nullopt;
  if (!parts) return error(ErrorCode::RemoteError, "the coordinator sent a malformed all-gather");
  return std::move(*parts);
}

Status Client::barrier(int64_t timeout_ms) {
  return all_gather({}, timeout_ms).status();
}

void Client::report(const Failure& failure) {
  send_report(failure, encode(FrameType::Report, failure));
}

void Client::report_stall(const Stall& stall) {
  Failure alone = stall.failure;
  if (!stall.detail.empty()) alone.reason += ": " + stall.detail;
  send_report(alone, encode(stall));
}

// `failure` is the cause if there is no coordinator any more.
void Client::send_report(const Failure& failure, Bytes frame) {
  loop_->post([this, failure, frame = std::move(frame)]() mutable {
    if (reported_) return;
    reported_ = failure;
    if (!connection_) return on_farewell();
    connection_->send(std::move(frame));
    unanswered_.emplace(loop_->now());
  });
}

Status Client::send_note(int to, Bytes note) {
  if (to != kEveryone && to != kAll && (to < 0 || to >= n_ranks())) {
    return error(ErrorCode::InvalidArgument,
                 "a note to rank %d: this communicator's ranks are 0 to %d", to, n_ranks() - 1);
  }
  if (note.size() > kMaxNote) {
    return error(ErrorCode::InvalidArgument, "a note of %zu bytes: at most %zu are possible",
                 note.size(), kMaxNote);
  }
  if (!loop_->is_mine()) return shut_down();
  {
    std::lock_guard lock(mutex_);
    if (left_) return left_status();
    if (!ended_.ok()) return ended_;
  }
  // Another thread may leave during `on_note`. Then this task runs after the task of `leave`,
  // perhaps when the session is gone; `clients` shows whether it is.
  const bool posted = loop_->post([this, clients = clients_, to, note = std::move(note)] {
    if (!clients->contains(this) || !connection_) return;
    connection_->send_note(std::make_shared<const Bytes>(encode(FrameType::Note, Note{to, note})));
  });
  return posted ? Status() : shut_down();
}

void Client::leave(uint64_t called) {
  if (!loop_->is_mine()) return;  // a forked child: the session is its parent's
  loop_->run([this, called] {
    stop_ticking();
    stop_watching_cancel();
    clients_->erase(this);
    if (connection_) {
      const auto connection = std::move(connection_);
      try {
        connection->send(encode_number(FrameType::Leave, called));
        connection->finish();
      } catch (...) {  // out of memory: the others count this rank as lost
        connection->close();
      }
    }
    std::lock_guard lock(mutex_);
    left_ = true;
    changed_.notify_all();
  });
}

// --- On the control thread ---

// Until it is in `clients_`, nothing else reports its failure.
void Client::connect(net::Wire wire, Bytes join_frame) {
  try {
    connect_or_throw(std::move(wire), std::move(join_frame));
  } catch (...) {
    give_up(caught());
  }
}

void Client::connect_or_throw(net::Wire wire, Bytes join_frame) {
  auto opened = Connection::open(*loop_, std::move(wire), this, kMaxPayload);
  if (!opened.ok()) return fail({opened.status().code(), rank(), opened.status().message()});
  connection_ = std::move(opened).value();
  clients_->insert(this);
  connection_->send(std::move(join_frame));
  if (const Cancel* cancel = options_.join.cancel) {
    auto watch = loop_->watch(cancel->fd(), EPOLLIN, [this](uint32_t) { on_cancel(); });
    if (!watch.ok()) return fail({watch.status().code(), rank(), watch.status().message()});
    cancel_watch_ = *watch;
  }
  tick();
}

void Client::on_frame(const Header& header, std::span<const uint8_t> payload) {
  if (header.type == FrameType::Heartbeat) return;
  if (header.type == FrameType::Welcome) {
    if (const auto welcome = decode_welcome(payload)) return on_welcome(*welcome);
  }
  if (header.type == FrameType::Gathered) {
    const auto piece = decode_gathered(payload);
    if (piece && on_gathered(*piece)) return;
  }
  if (header.type == FrameType::Departed) {
    const auto departures = decode_departures(payload);
    if (departures && on_departed(*departures)) return;
  }
  if (header.type == FrameType::Inquiry) {
    const auto sequence = decode_number(payload);
    if (sequence && on_inquiry(*sequence)) return;
  }
  if (header.type == FrameType::Noted) {
    const auto note = decode_note(payload);
    if (note && on_noted(*note)) return;
  }
  if (header.type == FrameType::Failed) {
    if (const auto failure = decode_failure(payload)) return fail(*failure);
  }
  if (header.type == FrameType::Farewell) {
    farewell_ = true;
    return;
  }
  fail_without_coordinator("it broke the control plane's protocol");
}

void Client::on_welcome(const Welcome& welcome) {
  coordinator_ = welcome;
  std::lock_guard lock(mutex_);
  joined_ = true;
  changed_.notify_all();
}

bool Client::on_gathered(const Gathered& piece) {
  const auto n = static_cast<uint64_t>(n_ranks());
  std::lock_guard lock(mutex_);
  // A caller that gave up still gets the answer; drop it.
  if (!gather_.active) return true;
  const bool expected = piece.sequence == gather_.sequence && !gather_.done &&
                        piece.expanded <= n * (kMaxContribution + kPartHeader) &&
                        piece.total <= piece.expanded && piece.offset == gather_.received.size() &&
                        piece.bytes.size() <= piece.total - piece.offset;
  if (!expected) return false;
  gather_.expanded = piece.expanded;
  gather_.received.reserve(piece.total);
  gather_.received.insert(gather_.received.end(), piece.bytes.begin(), piece.bytes.end());
  gather_.done = gather_.received.size() == piece.total;
  if (gather_.done) changed_.notify_all();
  return true;
}

bool Client::on_departed(const std::vector<Departure>& departures) {
  for (const Departure& departure : departures) {
    if (departure.rank < 0 || departure.rank >= n_ranks()) return false;
    if (options_.join.on_left) options_.join.on_left(departure.rank, departure.called);
  }
  return true;
}

bool Client::on_inquiry(uint64_t sequence) {
  const auto& position = options_.join.position;
  connection_->send(encode(position ? position(sequence) : Position{}));
  return true;
}

bool Client::on_noted(const Note& note) {
  if (note.peer < 0 || note.peer >= n_ranks()) return false;
  {
    std::lock_guard lock(mutex_);
    if (!joined_) return false;
  }
  if (options_.join.on_note) options_.join.on_note(note.peer, note.bytes);
  return true;
}

void Client::on_closed(const std::string& why) {
  if (farewell_) return on_farewell();
  fail_without_coordinator(why);
}

// Handles the coordinator's orderly departure: no exchange or arbitration is possible any more, and
// this rank reports failures itself.
void Client::on_farewell() {
  stop_ticking();
  if (connection_) connection_->close();
  connection_.reset();
  if (reported_) return fail(*reported_);
  std::lock_guard lock(mutex_);
  if (!ended_.ok()) return;
  ended_ = error(ErrorCode::RemoteError, "%s has left, and with it the coordinator",
                 coordinator_name().c_str());
  changed_.notify_all();
}

std::string Client::coordinator_name() const {
  if (coordinator_.coordinator_rank < 0) {
    return format("the process that made the unique id (%s)",
                  invitation_.addresses.front().text().c_str());
  }
  return format("rank %d (%s)", coordinator_.coordinator_rank, coordinator_.coordinator.c_str());
}

void Client::fail_without_coordinator(const std::string& why) {
  fail({ErrorCode::RemoteError, coordinator_.coordinator_rank,
        coordinator_name() + " was lost: " + why});
}

void Client::fail(const Failure& failure) {
  stop_ticking();
  if (connection_) connection_->finish();
  connection_.reset();
  bool tell = false;
  {
    std::lock_guard lock(mutex_);
    tell = joined_ && !failed_ && !left_;
    if (!failed_) ended_ = Status(failure.code, failure.reason);
    failed_ = true;
    changed_.notify_all();
  }
  if (tell && options_.join.on_failure) options_.join.on_failure(failure);
}

void Client::tick() {
  tick_timer_.reset();
  const milliseconds liveness(options_.liveness_ms);
  const milliseconds period = std::max(liveness / kHeartbeatsPerLiveness, milliseconds(10));
  const auto connection = connection_;
  if (connection->is_silent(period, liveness)) {
    if (farewell_) return on_farewell();
    return fail_without_coordinator(format("silent for %lld ms (stopped, hung or cut off)",
                                           static_cast<long long>(liveness.count())));
  }
  if (!connection_) return;  // the last look found the connection's end
  if (unanswered_) {
    unanswered_->check(loop_->now(), TimePoint::min(), period);
    if (unanswered_->length() >= liveness) {
      return fail_without_coordinator("it did not answer a report of failure");
    }
  }
  if (loop_->now() - connection_->last_sent() >= period / 2) {
    connection_->send(encode_empty(FrameType::Heartbeat));
  }
  tick_timer_ = loop_->at(loop_->now() + period, [this] { tick(); });
}

void Client::give_up(const Status& why) {
  const Failure failure{why.code(), rank(), format("rank %d: %s", rank(), why.message().c_str())};
  if (connection_) connection_->send(encode(FrameType::Report, failure));
  fail(failure);
}

void Client::stop_ticking() {
  if (tick_timer_) loop_->cancel(*tick_timer_);
  tick_timer_.reset();
}

// Ends the waiting calls. The connection stays, to tell the coordinator why.
void Client::on_cancel() {
  stop_watching_cancel();
  std::lock_guard lock(mutex_);
  if (ended_.ok()) ended_ = options_.join.cancel->reason();
  changed_.notify_all();
}

void Client::stop_watching_cancel() {
  if (cancel_watch_ != 0) loop_->unwatch(cancel_watch_, options_.join.cancel->fd());
  cancel_watch_ = 0;
}

void Client::abandon() {
  stop_ticking();
  stop_watching_cancel();
  if (connection_) connection_->close();
  connection_.reset();
  std::lock_guard lock(mutex_);
  if (ended_.ok()) ended_ = shut_down();
  changed_.notify_all();
}

}  // namespace hetccl::bootstrap
