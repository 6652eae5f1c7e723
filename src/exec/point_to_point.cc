// The engine's side: what is under way, its completion, deadlines, abort. point_to_point_launch.cc
// is the caller's side.
#include "exec/point_to_point.h"

#include <algorithm>
#include <utility>

#include "plan/message.h"

namespace hetccl::exec {

std::string describe(const Message& message) {
  if (message.peer == kAnyRank) {
    return format("recv of %llu %s from any rank%s", static_cast<unsigned long long>(message.count),
                  name_of(message.type).data(),
                  message.tag == 0 ? "" : format(" with tag %u", message.tag).c_str());
  }
  return format("%s of %llu %s %s rank %d", message.send ? "send" : "recv",
                static_cast<unsigned long long>(message.count), name_of(message.type).data(),
                message.send ? "to" : "from", message.peer);
}

PointToPoint::PointToPoint(PointToPointOptions options)
    : options_(std::move(options)),
      host_memory_((options_.device->capabilities() & device::kHostAccessible) != 0),
      wire_(
          {.communicator = options_.communicator,
           .ccl = options_.ccl,
           .begin_receive = [this](int peer, Operation& op) { return begin_receive(peer, op); }}) {}

PointToPoint::~PointToPoint() = default;

Result<std::unique_ptr<PointToPoint>> PointToPoint::create(PointToPointOptions options) {
  std::unique_ptr<PointToPoint> made(new PointToPoint(std::move(options)));
  HETCCL_ASSIGN(made->forked_, made->options_.device->create_event());
  HETCCL_ASSIGN(made->joined_, made->options_.device->create_event());
  HETCCL_ASSIGN(made->self_, made->make_lane(made->options_.rank, true, nullptr, false));
  made->met_.push_back(made->self_.get());
  if (made->host_memory_) {
    HETCCL_ASSIGN(made->any_lane_, made->make_lane(kAnyRank, false, nullptr, true));
  }
  return made;
}

Result<std::unique_ptr<PointToPoint::Lane>> PointToPoint::make_lane(int peer, bool send,
                                                                    Window* window,
                                                                    bool direct) const {
  auto& device = *options_.device;
  const int self = options_.rank;
  // Where it may be any, another rank stands for all.
  const int other = peer == kAnyRank ? (self == 0 ? 1 : 0) : peer;
  auto lane = std::make_unique<Lane>(
      plan::plan_message(self, send ? self : other, send ? other : self, *options_.topology));
  lane->peer = peer;
  lane->send = send;
  lane->window = window;
  const size_t ring = window == nullptr ? 0 : window->ring_bytes();
  lane->choice = lower::message_choice(lower::kMessageChoice, ring);
  std::vector<lower::Reach> reach;
  if (peer != self) reach.push_back({other, direct, ring});
  lane->copies_nothing = !reach.empty() && reach[0].needs_no_copy();
  lane->program.bind({traits_of(device, options_.topology->local_rank(self)), std::move(reach)});
  HETCCL_ASSIGN(lane->interpreter, Interpreter::create(device, nullptr, 1, {}));
  if (lane->copies_nothing && host_memory_) return lane;
  HETCCL_ASSIGN(lane->stream, device.create_stream());
  HETCCL_ASSIGN(lane->rotation, Rotation::create(device));
  return lane;
}

PointToPoint::Lane& PointToPoint::lane_of(const Message& message) const {
  if (message.peer == options_.rank) return *self_;
  if (message.peer == kAnyRank) return *any_lane_;
  return *lanes_[2 * static_cast<size_t>(message.peer) + (message.send ? 1 : 0)];
}

bool PointToPoint::done(const Ticket& ticket) {
  return ticket.group_->use.load(std::memory_order_acquire) != ticket.use_;
}

Result<std::unique_ptr<PointToPoint::Ends>> PointToPoint::make_ends(int peer, Window* window,
                                                                    bool direct) const {
  auto ends = std::make_unique<Ends>();
  HETCCL_ASSIGN(ends->receives, make_lane(peer, false, window, direct));
  HETCCL_ASSIGN(ends->sends, make_lane(peer, true, window, direct));
  return ends;
}

void PointToPoint::meet(int peer, std::unique_ptr<Ends> ends) {
  Window* const window = ends->sends->window;
  met_.insert(met_.end(), {ends->receives.get(), ends->sends.get()});
  const size_t first = 2 * static_cast<size_t>(peer);
  if (lanes_.size() < first + 2) lanes_.resize(first + 2);
  lanes_[first] = std::move(ends->receives);
  lanes_[first + 1] = std::move(ends->sends);
  wire_.connect({peer, nullptr, false, window}, carried_by(peer));
}

void PointToPoint::connect(int peer, transport::Channel* channel, bool crosses) {
  if (aborted_ && channel != nullptr) channel->close();
  for (const bool send : {false, true}) lane_of({.send = send, .peer = peer}).channel = channel;
  wire_.connect({peer, channel, crosses}, carried_by(peer));
}

Wire::Carried PointToPoint::carried_by(int peer) const {
  return {&lane_of({.send = true, .peer = peer}).operations,
          &lane_of({.send = false, .peer = peer}).operations, true};
}

bool PointToPoint::poll(TimePoint now) {
  admit();
  bool moved = false;
  if (!aborted_) {
    moved = match_any();
    moved |= wire_.poll(now);
    if (!wire_.status().ok() && !faulted_) fault({wire_.status(), -1, {}});
    if (!moved && !faulted_) check(now);
  } else if (released_) {
    wire_.release_windows(now);
  }
  const bool retired = retire();
  // After that: what a retired message has read, its sender must learn while somebody polls.
  if (!aborted_) moved |= wire_.exchange_credit();
  return retired || moved;
}

void PointToPoint::admit() {
  {
    std::lock_guard lock(mutex_);
    std::swap(admitting_, launched_);
  }
  for (Transit* transit : admitting_) {
    if (released_) transit->release_waits();  // it was launched while the abort began
    transit->order = admitted_++;
    if (transit->message.peer == kAnyRank)
      any_.push_back(transit);
    else
      transit->lane->operations.launch(*transit);
  }
  admitting_.clear();
  if (aborted_) release_streams();
}

bool PointToPoint::begin_receive(int peer, Operation& op) {
  Lane& lane = lane_of({.send = false, .peer = peer});
  if (is_held(lane, static_cast<Transit&>(op))) return false;
  op.call.sequence = lane.begun++;
  return true;
}

template <typename Visit>
void PointToPoint::for_each_in_flight(Visit&& visit) {
  for (Lane* lane : met_) {
    InFlight& operations = lane->operations;
    for (uint64_t n = operations.oldest(); n < operations.end(); ++n)
      visit(static_cast<Transit&>(operations.at(n)));
  }
  for (Transit* transit : any_) visit(*transit);
}

bool PointToPoint::may_retire(Transit& transit) {
  if (!transit.is_finished()) return false;
  if (aborted_) return true;
  // Until the abort that is to come, messages may still be under way.
  return transit.ended() && !transit.given_up.load(std::memory_order_acquire) && !is_abandoned() &&
         (!transit.by_library || check_library(*transit.lane));
}

// As Executor::is_abandoned.
bool PointToPoint::is_abandoned() {
  const std::optional<Fault> abandoned = wire_.find_abandoned();
  if (abandoned && !faulted_) fault(*abandoned);
  return abandoned.has_value();
}

bool PointToPoint::retire() {
  bool retired = aborted_ && retire_any();
  for (Lane* lane : met_) {
    while (!lane->operations.empty()) {
      auto& transit = static_cast<Transit&>(lane->operations.at(lane->operations.oldest()));
      if (!may_retire(transit)) break;
      wire_.acknowledge_reads();
      lane->operations.retire();
      end(transit);
      retired = true;
    }
  }
  return retired;
}

bool PointToPoint::retire_any() {
  const size_t before = any_.size();
  std::erase_if(any_, [this](Transit* transit) {
    if (!may_retire(*transit)) return false;
    end(*transit);
    return true;
  });
  return any_.size() != before;
}

void PointToPoint::end(Transit& transit) {
  if (transit.turn.left != nullptr && !aborted_) Rotation::leave(transit.turn);
  transit.lane->retired.fetch_add(1, std::memory_order_release);
  Group& group = *transit.group;
  transits_.give_back(transit);
  if (group.left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  group.use.fetch_add(1, std::memory_order_release);
  groups_.give_back(group);
  in_flight_.fetch_sub(1);
}

void PointToPoint::check(TimePoint now) {
  for (Lane* lane : met_) {
    if (!lane->operations.empty() && !check_lane(*lane, now)) return;
  }
  if (!any_.empty() && !check_senders(now)) return;
  if (now < next_deadline_check_) return;
  next_deadline_check_ = now + std::chrono::milliseconds(1);
  for (Lane* lane : met_) {
    if (lane->operations.empty()) continue;
    const auto& last = static_cast<Transit&>(lane->operations.at(lane->operations.end() - 1));
    if (last.by_library && !check_library(*lane)) return;
  }
  bool in_time = true;
  for_each_in_flight([&](Transit& transit) {
    if (in_time && now >= transit.call.deadline) in_time = check_deadline(transit);
  });
}

// What has arrived from a rank that has left is still to be had.
bool PointToPoint::is_gone(Lane& lane, TimePoint now) const {
  if (options_.departures == nullptr || !options_.departures->has_left(lane.peer)) return false;
  if (lane.left == TimePoint{}) lane.left = now;
  return now - lane.left >= options_.departure_grace;
}

bool PointToPoint::check_lane(Lane& lane, TimePoint now) {
  auto& first = static_cast<Transit&>(lane.operations.at(lane.operations.oldest()));
  // What the library has of a sender it keeps for the receiver.
  if (first.outstanding == 0 && !(lane.send && awaits_peer(first))) return true;
  const bool broken = lane.channel != nullptr && !lane.channel->status().ok();
  const bool gone = is_gone(lane, now);
  if (!gone && !broken) return true;
  if (!gone && lane.left == TimePoint{}) {
    fault({lane.channel->status(), lane.peer, {}});
    return false;
  }
  fault({error(Code::RemoteError, "%s cannot complete: rank %d has left the communicator",
               describe(first.message).c_str(), lane.peer),
         lane.peer,
         {}});
  return false;
}

bool PointToPoint::check_deadline(Transit& transit) {
  if (!awaits_peer(transit)) return true;
  const auto given =
      std::chrono::round<std::chrono::milliseconds>(transit.call.deadline - transit.call.launched);
  const Message& message = transit.message;
  const std::string why = !transit.started().reached(1) ? "the stream has not come to it"
                          : message.peer == kAnyRank    ? "no rank has sent it"
                          : message.send ? format("rank %d has not received it", message.peer)
                                         : format("rank %d has not sent it", message.peer);
  fault({error(Code::Timeout, "%s timed out after %lld ms: %s", describe(message).c_str(),
               static_cast<long long>(given.count()), why.c_str()),
         std::max(message.peer, -1),
         {}});
  return false;
}

void PointToPoint::fault(const Fault& fault) {
  faulted_ = true;
  if (options_.on_fault) options_.on_fault(fault);
}

std::vector<PendingMessage> PointToPoint::pending() {
  admit();
  std::vector<PendingMessage> all;
  for_each_in_flight([&](Transit& transit) {
    if (!awaits_peer(transit)) return;
    const uint32_t slices = transit.n_slices;
    const uint32_t left = transit.by_library ? 1 : static_cast<uint32_t>(transit.outstanding);
    all.push_back({transit.message, transit.call.sequence, slices, slices - left,
                   transit.call.launched, transit.started().reached(1)});
  });
  return all;
}

void PointToPoint::abort() {
  if (aborted_) return;
  admit();
  aborted_ = true;
  wire_.close();
  abort_libraries();
  wire_.abandon_windows();
  release_streams();
}

// As Executor::release_streams.
void PointToPoint::release_streams() {
  if (released_ || !aborts_have_begun()) return;
  released_ = true;
  for_each_in_flight([](Transit& transit) { transit.release_waits(); });
  for (Lane* lane : met_) {
    if (lane->rotation != nullptr) lane->rotation->release_waits();
  }
}

}  // namespace hetccl::exec
