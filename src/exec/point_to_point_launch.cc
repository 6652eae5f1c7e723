// The caller's side of messages between two ranks: enqueues all device work of a call at once.
#include <algorithm>

#include "exec/point_to_point.h"

namespace hetccl::exec {
namespace {

// Slices on their way in each direction. A rank that sends a message and then, in another call,
// receives one of the same rank, which does the same, gets so far without its other end.
constexpr plan::Choice kChoice{lower::kMostFixedSlice, 7};

// The n-th message that a rank sends itself is the n-th that it receives from itself.
const Message* other_end_of(std::span<const Message> messages, const Message& sent) {
  const auto same_lane = [&](const Message& one, bool send) {
    return one.send == send && one.peer == sent.peer;
  };
  auto number = std::count_if(messages.data(), &sent,
                              [&](const Message& one) { return same_lane(one, true); });
  return &*std::find_if(messages.begin(), messages.end(),
                        [&](const Message& one) { return same_lane(one, false) && number-- == 0; });
}

}  // namespace

Result<PointToPoint::Ticket> PointToPoint::launch(std::span<const Message> messages, TimePoint now,
                                                  TimePoint deadline, device::Stream* user) {
  Call times;
  times.launched = now;
  times.deadline = deadline;
  Status status = prepare(messages, times);
  if (!status.ok()) {
    for (Transit* transit : launching_) transits_.give_back(*transit);
    return status;
  }
  Group& group = groups_.take();
  const Ticket ticket(&group, group.use.load(std::memory_order_relaxed));
  status = publish(group);
  if (status.ok() && options_.on_published) options_.on_published();
  if (status.ok() && aborted_) status = error(Code::Aborted, "the communicator was aborted");
  if (status.ok()) status = enqueue(user);
  if (status.ok()) return ticket;
  give_up(user);
  return status;
}

// What is sent comes first: it waits for no other rank, so it completes on a single hardware queue.
Status PointToPoint::prepare(std::span<const Message> messages, const Call& times) {
  launching_.clear();
  for (const bool send : {true, false}) {
    for (const Message& message : messages) {
      if (message.send != send) continue;
      const bool own = message.peer == options_.rank;
      if (own && !send) continue;
      HETCCL_TRY(prepare(message, own ? other_end_of(messages, message) : nullptr, times));
    }
  }
  return {};
}

Status PointToPoint::prepare(const Message& message, const Message* other_end, const Call& times) {
  Lane& lane = lane_of(message);
  Transit& transit = transits_.take(*options_.device);
  launching_.push_back(&transit);
  transit.message = message;
  transit.lane = &lane;
  Call call = times;
  call.send = message.data;
  call.recv = other_end != nullptr ? other_end->data : message.data;
  call.signature = {
      .collective = Collective::PointToPoint, .type = message.type, .count = message.count};
  call.tag = message.tag;
  HETCCL_ASSIGN(
      const Program::Lowered lowered,
      lane.program.lower_for({.type = message.type, .count = message.count, .choice = kChoice}));
  return transit.prepare(lowered, call);
}

Status PointToPoint::take_buffers(Transit& transit) {
  Lane& lane = *transit.lane;
  const uint64_t number = lane.launched++;
  transit.call.sequence = number;
  if (!transit.code->rotates) return transit.use_own_buffers();
  HETCCL_ASSIGN(const auto turn,
                lane.rotation->take(number, lane.retired.load(std::memory_order_acquire),
                                    transit.scratch_bytes(), transit.staging_bytes()));
  transit.use(turn);
  return {};
}

// Before anything is enqueued, since that may block this thread until messages have moved, or until
// an abort. A turn comes back only when its operation retires.
Status PointToPoint::publish(Group& group) {
  Status status;
  for (Transit* transit : launching_) {
    transit->group = &group;
    const Status taken = take_buffers(*transit);
    if (taken.ok()) continue;
    transit->given_up.store(true, std::memory_order_relaxed);
    if (status.ok()) status = taken;
  }
  if (launching_.empty()) {
    group.use.fetch_add(1, std::memory_order_release);
    groups_.give_back(group);
    return status;
  }
  group.left.store(static_cast<uint32_t>(launching_.size()), std::memory_order_relaxed);
  in_flight_.fetch_add(1);
  std::lock_guard lock(mutex_);
  launched_.insert(launched_.end(), launching_.begin(), launching_.end());
  return status;
}

bool PointToPoint::needs_stream(const Transit& transit, const device::Stream* user) const {
  return user != nullptr || transit.lane->stream != nullptr;
}

Status PointToPoint::enqueue(device::Stream* user) {
  using Section = Interpreter::Part::Section;
  uint32_t times = 0;
  for (Transit* transit : launching_) times = std::max(times, transit->n_slices);
  HETCCL_TRY(enqueue({Section::Prologue}, user));
  // One slice of each in turn, so that on a single hardware queue too all get on.
  for (uint32_t time = 0; time < times; ++time) HETCCL_TRY(enqueue({Section::Body, time}, user));
  HETCCL_TRY(enqueue({Section::Epilogue}, user));
  for (Transit* transit : launching_) {
    if (needs_stream(*transit, user)) {
      device::Stream& last = user != nullptr ? *user : *transit->lane->stream;
      HETCCL_TRY(options_.device->write_flag(last, transit->finished(), 1));
    } else {
      transit->finished().word.store(1, std::memory_order_release);
      transit->started().word.store(1, std::memory_order_release);
    }
  }
  return {};
}

Status PointToPoint::enqueue(Interpreter::Part part, device::Stream* user) {
  for (Transit* transit : launching_) {
    if (!needs_stream(*transit, user)) continue;
    device::Stream& stream = user != nullptr ? *user : *transit->lane->stream;
    HETCCL_TRY(transit->lane->interpreter->enqueue(*transit, stream, {}, part));
  }
  return {};
}

// The work enqueued so far goes on until the abort that follows.
void PointToPoint::give_up(device::Stream* user) {
  for (Transit* transit : launching_) {
    transit->given_up.store(true, std::memory_order_release);
    Lane& lane = *transit->lane;
    device::Stream* last = user != nullptr ? user : lane.stream.get();
    const bool drains = last != nullptr && lane.interpreter->join(*last).ok() &&
                        options_.device->write_flag(*last, transit->finished(), 1).ok();
    if (!drains) transit->finished().word.store(1, std::memory_order_release);
  }
}

}  // namespace hetccl::exec
