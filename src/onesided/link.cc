#include "onesided/link.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <utility>

#include "base/printable.h"

namespace hetccl::onesided {

namespace {

using std::chrono::milliseconds;

constexpr size_t kMostItems = 4096;
// Limit of answers that a peer leaves unread while it sends more frames; beyond it the peer is
// faulty.
constexpr size_t kMostUnread = 4 * kMostItems;
// Frames that may be read ahead of a device's copies.
constexpr size_t kMostLandings = 1024;
// When the peer ends, its channel breaks before the control plane brings the reason. The link waits
// this long for the reason.
constexpr milliseconds kNewsTime{250};
constexpr milliseconds kCheckPeriod{5};
constexpr milliseconds kLastWait{5000};
constexpr size_t kBrief = size_t{4} << 10;

Status left_status() {
  return error(ErrorCode::RemoteError, "it has closed the connection");
}

}  // namespace

Link::Link(progress::Engine& engine, Regions& regions, Mailbox& mailbox, Options options,
           std::unique_ptr<transport::Channel> channel, std::unique_ptr<exec::Window> window,
           DeviceSide device)
    : engine_(engine),
      regions_(regions),
      mailbox_(mailbox),
      options_(std::move(options)),
      channel_(std::move(channel)),
      window_(std::move(window)),
      device_(std::move(device)),
      outbox_(*channel_, options_.communicator, device_.copies_out.get()),
      inbox_(*channel_, {options_.communicator, options_.reaches_device, window_.get(),
                         device_.copies_in.get(), device_.in}),
      loader_({window_.get(), options_.reaches_device, channel_->takes_lists(),
               device_.copies_out.get(), device_.out}) {}

// --- called by users' threads

Status Link::start(const std::shared_ptr<Transfer>& transfer) {
  {
    const std::lock_guard lock(mutex_);
    if (is_lost_.load(std::memory_order_acquire)) return cause();
    if (transfers_.size() >= kMostTransfers) {
      return error(ErrorCode::InvalidUsage,
                   "%zu transfers with %s are under way: wait until some are done", kMostTransfers,
                   options_.name.c_str());
    }
    for (const uint64_t region : transfer->list->regions()) {
      HETCCL_ASSIGN(Use use, regions_.use(region, 0, 0, 0));
      transfer->uses.push_back(std::move(use));
    }
    transfer->id = next_id_++;
    transfers_.emplace(transfer->id, transfer);
    turns_.push_back({transfer});
  }
  // The waiting caller drives a short transfer itself.
  engine_.notify(transfer->list->bytes() > kBrief);
  return {};
}

void Link::cancel(Transfer& transfer, Status reason) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = transfers_.find(transfer.id);
    if (found == transfers_.end() || transfer.done() || transfer.ending) return;
    if (transfer.begun) {
      end(transfer, std::move(reason));
    } else {
      const std::shared_ptr<Transfer> kept = found->second;
      std::erase_if(turns_, [&](const Turn& turn) { return turn.transfer == kept; });
      finish(kept, std::move(reason));
    }
  }
  engine_.notify(true);
}

Status Link::notify(Bytes notification) {
  {
    const std::lock_guard lock(mutex_);
    if (is_lost_.load(std::memory_order_acquire)) return cause();
    if (outbox_.size() >= kMostItems) {
      return error(ErrorCode::InvalidUsage,
                   "too much waits to leave for %s: wait until some transfers are done",
                   options_.name.c_str());
    }
    outbox_.add(Frame{.kind = Frame::Kind::Notify, .payload = std::move(notification)});
  }
  engine_.notify(true);
  return {};
}

void Link::fail(const Status& why) {
  settle(why);
  engine_.notify(true);
}

void Link::settle(const Status& why) {
  const std::lock_guard lock(fate_mutex_);
  if (!lost_.ok()) return;
  lost_ = why;
  is_lost_.store(true, std::memory_order_release);
}

Status Link::cause() const {
  const std::lock_guard lock(fate_mutex_);
  return lost_;
}

LinkStatistics Link::statistics() const {
  const std::lock_guard lock(mutex_);
  LinkStatistics now = statistics_;
  now.under_way = transfers_.size();
  return now;
}

// Whether it must be polled: nothing wakes the engine when a device has copied, when a stream opens
// a gate, or when the peer has read from a window.
bool Link::silent() const {
  const std::lock_guard lock(mutex_);
  return copies() || !turns_.empty();
}

bool Link::copies() const {
  return !(inbox_.copied() && outbox_.copied());
}

bool Link::touches(const Region& region) const {
  const std::lock_guard lock(mutex_);
  const auto own = [&](const auto& entry) { return are_of(entry.second->uses, region); };
  const auto served = [&](const auto& entry) {
    return std::any_of(entry.second.parts.begin(), entry.second.parts.end(),
                       [&](const Served::Part& part) { return part.use.is_of(region); });
  };
  return std::any_of(transfers_.begin(), transfers_.end(), own) ||
         std::any_of(served_.begin(), served_.end(), served) || outbox_.touches(region) ||
         inbox_.touches(region);
}

// --- called by the engine's driver

bool Link::poll(TimePoint now) {
  bool moved = false, ends = false;
  {
    const std::lock_guard lock(mutex_);
    if (over()) return false;
    if (!ended_.ok()) {
      ends = moved = finish_end(now);
    } else if (!look_for_end(now)) {
      moved = move(now);
      if (moved) moved_at_ = now;
    }
  }
  if (ends && options_.on_over) options_.on_over();
  return moved;
}

bool Link::move(TimePoint now) {
  bool moved = false;
  const bool reads = mailbox_.has_room() && inbox_.landing() < kMostLandings;
  if (!mailbox_.has_room() && read_) ++statistics_.stalls;
  read_ = mailbox_.has_room();
  const Status received =
      inbox_.progress(reads, [&](const Frame& frame) { return on_frame(frame, now); }, &moved);
  if (!received.ok()) {
    settle(received.with(options_.name));
    return true;
  }
  if (window_ != nullptr) moved |= window_->exchange();
  moved |= take_turns();
  moved |= outbox_.progress(now);
  if (turns_.empty() && outbox_.size() == 0) loader_.rest();
  if (now >= next_check_) check_deadlines(now);
  return moved;
}

bool Link::take_turns() {
  bool moved = false;
  // Gives each transfer one turn. One that cannot go on now lets the others go first.
  for (size_t left = turns_.size(); left > 0; --left) {
    if (outbox_.bytes() >= 2 * outbox_.pace().bytes() || outbox_.size() >= kMostItems) break;
    const Turn turn = std::move(turns_.front());
    turns_.pop_front();
    bool again = false;
    moved |= take_turn(turn, &again);
    if (again) turns_.push_back(turn);
    if (std::exchange(no_room_, false)) break;
  }
  return moved;
}

bool Link::take_turn(const Turn& turn, bool* again) {
  if (turn.transfer == nullptr) return serve_some(turn.served, again);
  if (!turn.transfer->options.gate.is_open()) {
    *again = true;
    return false;
  }
  return turn.transfer->is_put ? put_some(turn.transfer, again) : ask_some(turn.transfer, again);
}

void Link::send(Loader::Loaded loaded, const Frame& frame, std::function<void()> sent) {
  if (loaded.items.empty()) return outbox_.add(frame, std::move(sent));
  outbox_.add(frame);
  loaded.items.back().sent = std::move(sent);
  for (Outbox::Item& item : loaded.items) outbox_.add(std::move(item));
}

Loader::Loaded Link::load(const std::vector<Loader::Piece>& pieces) {
  if (pieces.empty()) return {};
  Loader::Loaded loaded = loader_.load(pieces);
  no_room_ = loaded.n == 0;
  return loaded;
}

// The last frame of a transfer carries its notification.
void Link::note_made(Transfer& transfer, Frame& frame) {
  transfer.begun = true;
  frame.last = transfer.all_asked = transfer.asked.at_end();
  frame.notifies = frame.last && transfer.options.notification.has_value();
  if (frame.notifies) frame.payload = *transfer.options.notification;
}

bool Link::put_some(const std::shared_ptr<Transfer>& transfer, bool* again) {
  Frame frame{.kind = Frame::Kind::Put, .transfer = transfer->id};
  Walk& walk = transfer->asked;
  std::vector<Loader::Piece> pieces;
  const size_t most = outbox_.pace().bytes();
  size_t bytes = 0;
  walk.cut(most);
  for (Walk next = walk; !next.at_end() && pieces.size() < kMaxPieces && bytes < most;) {
    const Walk::Step step = next.step();
    pieces.push_back({step.local, static_cast<size_t>(step.piece.bytes)});
    frame.pieces.push_back(step.piece);
    bytes += step.piece.bytes;
    next.advance();
  }
  Loader::Loaded loaded = load(pieces);
  frame.pieces.resize(loaded.n);
  for (size_t i = 0; i < loaded.n; ++i) walk.advance();
  *again = !walk.at_end();
  if (frame.pieces.empty() && *again) return false;
  frame.way = loaded.way;
  frame.data = std::move(loaded.data);
  note_made(*transfer, frame);
  send(std::move(loaded), frame, frame.last ? when_left(transfer) : std::function<void()>());
  return true;
}

bool Link::ask_some(const std::shared_ptr<Transfer>& transfer, bool* again) {
  Frame frame{.kind = Frame::Kind::Get, .transfer = transfer->id};
  requests_.add(*transfer, frame);
  *again = !transfer->asked.at_end();
  if (frame.pieces.empty() && *again) return false;
  note_made(*transfer, frame);
  outbox_.add(frame);
  return true;
}

bool Link::serve_some(uint64_t id, bool* again) {
  const auto found = served_.find(id);
  if (found == served_.end()) return false;
  Served& served = found->second;
  Frame frame{.kind = Frame::Kind::Data, .transfer = id};
  std::vector<Loader::Piece> pieces;
  const size_t most = outbox_.pace().bytes();
  size_t bytes = 0;
  for (const Served::Part& part : served.parts) {
    if (pieces.size() == kMaxPieces || bytes >= most) break;
    pieces.push_back({part.from, part.bytes});
    bytes += part.bytes;
  }
  Loader::Loaded loaded = load(pieces);
  for (; frame.count < loaded.n; ++frame.count, --served_parts_) {
    if (!loaded.items.empty()) add(loaded.items.back().uses, std::move(served.parts.front().use));
    served.parts.pop_front();
  }
  frame.way = loaded.way;
  frame.data = std::move(loaded.data);
  *again = !served.parts.empty();
  served.queued = *again;
  frame.last = served.all_asked && served.parts.empty();
  if (frame.count == 0 && !frame.last) return false;
  statistics_.bytes_given += loaded.bytes;
  std::function<void()> sent;
  if (frame.last) {
    if (served.notification) {
      sent = [this, told = std::move(*served.notification)]() mutable { deliver(std::move(told)); };
    }
    served_.erase(found);
  }
  send(std::move(loaded), frame, std::move(sent));
  return true;
}

// --- received frames

Status Link::nonsense(const char* what) const {
  return error(ErrorCode::RemoteError, "it sent %s: is it of this version of hetccl?", what);
}

Result<Inbox::Landing> Link::on_frame(const Frame& frame, TimePoint now) {
  if (outbox_.size() > kMostUnread) return nonsense("much, and reads no answers");
  switch (frame.kind) {
    case Frame::Kind::Put:
      if (refused_.size() > kMostTransfers) return nonsense("too many transfers");
      return on_put(frame);
    case Frame::Kind::Get:
      HETCCL_TRY(on_get(frame));
      break;
    case Frame::Kind::Data:
      return on_data(frame, now);
    case Frame::Kind::Done:
      HETCCL_TRY(on_done(frame));
      break;
    case Frame::Kind::Notify:
      return Inbox::Landing{{}, {}, {}, [this, told = frame.payload] { deliver(told); }};
    case Frame::Kind::Cancel:
      on_cancel(frame.transfer);
      break;
  }
  return Inbox::Landing();
}

// If the put is refused, its pieces are still received, and dropped, since they are on their way.
Inbox::Landing Link::on_put(const Frame& frame) {
  if (!refused_.contains(frame.transfer)) {
    auto landing = Inbox::find_places(regions_, frame);
    if (landing.ok()) {
      for (const Piece& piece : frame.pieces) statistics_.bytes_taken += piece.bytes;
      if (frame.last) {
        landing->landed = [this, id = frame.transfer, notifies = frame.notifies,
                           told = frame.payload] {
          if (refused_.contains(id)) return;
          if (notifies) deliver(told);
          answer(id, {});
        };
      }
      return std::move(landing).value();
    }
    refuse(frame, landing.status());
  }
  Inbox::Landing dropped;
  dropped.way = frame.way;
  for (const Piece& piece : frame.pieces) dropped.pieces.push_back({{}, piece.bytes});
  if (frame.last) refused_.erase(frame.transfer);
  return dropped;
}

Result<std::deque<Link::Served::Part>> Link::find_parts(const Frame& frame) const {
  std::deque<Served::Part> parts;
  Regions::Lookup lookup(regions_);
  for (const Piece& piece : frame.pieces) {
    HETCCL_ASSIGN(Use use, lookup.use(piece.region, piece.offset, piece.bytes, kGet));
    const Place from = use.at(piece.offset);
    parts.push_back({std::move(use), from, static_cast<size_t>(piece.bytes)});
  }
  return parts;
}

Status Link::on_get(const Frame& frame) {
  if (served_parts_ + frame.pieces.size() > 2 * Requests::kMostPieces ||
      served_.size() > kMostTransfers || refused_.size() > kMostTransfers)
    return nonsense("too many gets");
  if (refused_.contains(frame.transfer)) {
    if (frame.last) refused_.erase(frame.transfer);
    return {};
  }
  auto parts = find_parts(frame);
  if (!parts.ok()) {
    stop_serving(frame.transfer);
    refuse(frame, parts.status());
    if (frame.last) refused_.erase(frame.transfer);
    return {};
  }
  Served& served = served_[frame.transfer];
  served_parts_ += parts->size();
  std::move(parts->begin(), parts->end(), std::back_inserter(served.parts));
  served.all_asked = frame.last;
  if (frame.notifies) served.notification = frame.payload;
  if (!std::exchange(served.queued, true)) turns_.push_back({nullptr, frame.transfer});
  return {};
}

Result<Inbox::Landing> Link::on_data(const Frame& frame, TimePoint now) {
  const auto found = transfers_.find(frame.transfer);
  if (found == transfers_.end() || found->second->is_put) return nonsense("what nobody asked for");
  const std::shared_ptr<Transfer> transfer = found->second;
  if (frame.count > transfer->outstanding) return nonsense("more than it was asked for");
  Inbox::Landing landing;
  landing.way = frame.way;
  landing.pieces = requests_.take(*transfer, frame.count, now);
  if (!frame.last) return landing;
  if (!transfer->all_asked || transfer->outstanding > 0)
    return nonsense("less than it was asked for");
  landing.landed = [this, transfer] { finish(transfer, transfer->reason); };
  return landing;
}

Status Link::on_done(const Frame& frame) {
  const auto found = transfers_.find(frame.transfer);
  if (found == transfers_.end()) return {};
  const std::shared_ptr<Transfer> transfer = found->second;
  if (frame.last) {  // the answer to a Cancel: all frames sent before it have been handled
    if (!transfer->ending) return nonsense("an answer to no question");
    end_answered(transfer);
  } else if (transfer->ending) {  // ignores it: the answer to the Cancel is still to come
  } else if (frame.code != ErrorCode::Ok) {
    const std::string text(frame.payload.begin(), frame.payload.end());
    end(*transfer, Status(frame.code, printable(text, kMaxText)).with(options_.name));
  } else {
    if (!transfer->is_put || !transfer->all_asked) return nonsense("the end of what goes on");
    end_answered(transfer);
  }
  return {};
}

// The transfer's memory is free once, in addition, its frames have left and its arrived pieces have
// landed.
void Link::end_answered(const std::shared_ptr<Transfer>& transfer) {
  transfer->answered = true;
  if (!transfer->left) return;
  inbox_.when_landed([this, transfer] { finish(transfer, transfer->reason); });
}

std::function<void()> Link::when_left(const std::shared_ptr<Transfer>& transfer) {
  return [this, transfer] {
    transfer->left = true;
    if (transfer->answered) end_answered(transfer);
  };
}

// Cancels a transfer; it is over once the peer has answered.
void Link::end(Transfer& transfer, Status reason) {
  std::erase_if(turns_, [&](const Turn& turn) { return turn.transfer.get() == &transfer; });
  transfer.ending = true;
  transfer.left = false;
  transfer.ended_at = engine_.clock().now();
  transfer.reason = std::move(reason);
  outbox_.add(Frame{.kind = Frame::Kind::Cancel, .transfer = transfer.id},
              when_left(transfers_.at(transfer.id)));
}

void Link::stop_serving(uint64_t id) {
  const auto found = served_.find(id);
  if (found == served_.end()) return;
  served_parts_ -= found->second.parts.size();
  served_.erase(found);
}

void Link::on_cancel(uint64_t id) {
  stop_serving(id);
  refused_.erase(id);
  // By then all pieces of its puts are in their places.
  inbox_.when_landed(
      [this, id] { outbox_.add(Frame{.kind = Frame::Kind::Done, .transfer = id, .last = true}); });
}

void Link::refuse(const Frame& frame, const Status& why) {
  refused_.insert(frame.transfer);
  answer(frame.transfer, why);
}

void Link::answer(uint64_t id, const Status& status) {
  const std::string text = status.message().substr(0, kMaxText);
  outbox_.add(Frame{.kind = Frame::Kind::Done,
                    .transfer = id,
                    .code = status.code(),
                    .payload = {text.begin(), text.end()}});
}

void Link::deliver(Bytes notification) {
  mailbox_.put({options_.number, std::move(notification)});
}

void Link::finish(const std::shared_ptr<Transfer>& transfer, Status status) {
  if (transfers_.erase(transfer->id) == 0) return;
  requests_.drop(*transfer);
  ++statistics_.transfers;
  if (!status.ok()) {
    ++statistics_.failed;
  } else {
    (transfer->is_put ? statistics_.bytes_put : statistics_.bytes_got) += transfer->list->bytes();
  }
  transfer->finish(std::move(status));
}

void Link::check_deadlines(TimePoint now) {
  next_check_ = now + kCheckPeriod;
  const auto patience = milliseconds(options_.liveness_ms);
  if (!read_) moved_at_ = now;  // the answer may be behind notifications that nobody takes
  for (const auto& [id, transfer] : transfers_) {
    if (!transfer->ending && now >= transfer->options.deadline) {
      end(*transfer,
          error(ErrorCode::Timeout, "a %s of %" PRIu64 " bytes with %s is not done in its time",
                transfer->is_put ? "put" : "get", transfer->list->bytes(), options_.name.c_str()));
    } else if (transfer->ending && now - std::max(transfer->ended_at, moved_at_) > patience) {
      return settle(error(ErrorCode::Timeout,
                          "%s does not answer: nothing has moved for %" PRId64 " ms",
                          options_.name.c_str(), options_.liveness_ms));
    }
  }
}

// --- the end

bool Link::look_for_end(TimePoint now) {
  if (!is_lost_.load(std::memory_order_acquire)) {
    Status broken = channel_->status();
    if (broken.ok()) broken = device_.copies_in->status();
    if (broken.ok()) broken = device_.copies_out->status();
    const bool leaves = has_left_.load(std::memory_order_acquire);
    if (broken.ok() && !leaves) return false;
    if (!failed_at_) failed_at_ = now;
    if (now - *failed_at_ < kNewsTime) return !broken.ok();  // still reads its last messages
    settle((leaves ? left_status() : broken).with(options_.name));
  }
  begin_end(cause(), now);
  return true;
}

void Link::depart() {
  has_left_.store(true, std::memory_order_release);
  engine_.notify(true);
}

bool Link::flushed() const {
  const std::lock_guard lock(mutex_);
  return !transfers_.empty() || outbox_.size() == 0;
}

// From now on the channel moves no bytes of users' memory; devices may still copy.
void Link::begin_end(const Status& why, TimePoint now) {
  ending_since_ = now;
  ended_ = why;
  channel_->close();
  turns_.clear();
}

bool Link::finish_end(TimePoint now) {
  // A device that has failed may never report the end of its copies.
  const bool failed = !device_.copies_in->status().ok() || !device_.copies_out->status().ok();
  if (copies() && !(failed && now - ending_since_ > kLastWait)) return false;
  const auto all = std::exchange(transfers_, {});
  for (const auto& [id, transfer] : all) {
    ++statistics_.transfers, ++statistics_.failed;
    transfer->finish(transfer->ending && !transfer->reason.ok() ? transfer->reason : ended_);
  }
  served_.clear();
  outbox_.drop();
  inbox_.drop();
  over_.store(true, std::memory_order_release);
  return true;
}

}  // namespace hetccl::onesided
