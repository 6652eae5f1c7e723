// The caller's side of messages between two ranks: enqueues all device work of a call at once.
#include <algorithm>
#include <iterator>
#include <tuple>

#include "exec/point_to_point.h"
#include "lower/group.h"

namespace hetccl::exec {
namespace {

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

// In the order that all ranks share: by pairs, and of a pair what its lower rank sends first.
std::tuple<int, int, int> place_of(int self, const Message& message) {
  return {std::min(self, message.peer), std::max(self, message.peer),
          message.send == (self < message.peer) ? 0 : 1};
}

// `other_end`: of a message of a rank to itself, else null.
Call call_of(const Message& message, const Message* other_end) {
  Call call;
  call.send = message.data;
  call.recv = other_end != nullptr ? other_end->data : message.data;
  call.signature = {
      .collective = Collective::PointToPoint, .type = message.type, .count = message.count};
  call.tag = message.tag;
  return call;
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
template <typename Visit>
Status PointToPoint::for_each(std::span<const Message> messages, Visit&& visit) const {
  for (const bool send : {true, false}) {
    for (const Message& message : messages) {
      if (message.send != send) continue;
      const bool own = message.peer == options_.rank;
      if (own && !send) continue;
      HETCCL_TRY(visit(message, own ? other_end_of(messages, message) : nullptr));
    }
  }
  return {};
}

Status PointToPoint::prepare(std::span<const Message> messages, const Call& times) {
  launching_.clear();
  return for_each(messages, [&](const Message& message, const Message* other_end) {
    return prepare(message, other_end, times);
  });
}

Status PointToPoint::prepare(const Message& message, const Message* other_end, const Call& times) {
  Lane& lane = lane_of(message);
  const auto give_up = [this] { return aborted_.load(); };
  HETCCL_ASSIGN(const Route::Place place, lane.route.take(times.deadline, give_up));
  Transit& transit = transits_.take(*options_.device);
  launching_.push_back(&transit);
  transit.message = message;
  transit.lane = &lane;
  transit.by_library = place.by_library;
  transit.first_time = 0;
  Call call = call_of(message, other_end);
  call.launched = times.launched;
  call.deadline = times.deadline;
  call.sequence = place.number;
  return lower(transit, call);
}

Status PointToPoint::lower(Transit& transit, const Call& call) {
  Lane& lane = *transit.lane;
  Program& program = transit.by_library ? lane.library->program : lane.program;
  const Message& message = transit.message;
  HETCCL_ASSIGN(
      const Program::Lowered lowered,
      program.lower_for({.type = message.type, .count = message.count, .choice = lane.choice}));
  return transit.prepare(lowered, call);
}

Status PointToPoint::take_buffers(Transit& transit) {
  if (!transit.code->rotates) return transit.use_own_buffers();
  Lane& lane = *transit.lane;
  HETCCL_ASSIGN(
      const auto turn,
      lane.rotation->take(transit.call.sequence, lane.retired.load(std::memory_order_acquire),
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

Status PointToPoint::enqueue(device::Stream* user) {
  const uint32_t end = set_times();
  HETCCL_TRY(fork(user));
  HETCCL_TRY(enqueue_on_lanes(end));
  HETCCL_TRY(enqueue_on_user(user));
  return join(user);
}

Status PointToPoint::enqueue_on_lanes(uint32_t end) {
  const auto has_stream = [](const Transit& one) {
    return !one.lane->copies_nothing && !one.by_library;
  };
  HETCCL_TRY(lower::for_each_part_on_streams(launching_, end, has_stream,
                                             [this](Transit& one, lower::Part part) {
                                               return part.section == lower::Part::Section::Epilogue
                                                          ? enqueue_end(one)
                                                          : enqueue(one, part, *one.lane->stream);
                                             }));
  return enqueue_by_library();
}

// On a single hardware queue, or where a launch returns only once it is done, a message holds up
// those behind it until its other end has come to it. So all ranks take the pairs, and the two ways
// of a pair, in one order; and what follows a message comes after all of them.
Status PointToPoint::enqueue_by_library() {
  using Section = lower::Part::Section;
  by_library_.clear();
  std::copy_if(launching_.begin(), launching_.end(), std::back_inserter(by_library_),
               [](const Transit* one) { return one->by_library; });
  std::stable_sort(by_library_.begin(), by_library_.end(), [&](const Transit* a, const Transit* b) {
    return place_of(options_.rank, a->message) < place_of(options_.rank, b->message);
  });
  for (Transit* one : by_library_) {
    HETCCL_TRY(enqueue(*one, {Section::Prologue}, *one->lane->stream));
    HETCCL_TRY(enqueue(*one, {Section::Body}, *one->lane->stream));
  }
  for (Transit* one : by_library_) HETCCL_TRY(enqueue_end(*one));
  return {};
}

Status PointToPoint::enqueue_end(Transit& transit) {
  device::Stream& stream = *transit.lane->stream;
  HETCCL_TRY(enqueue(transit, {lower::Part::Section::Epilogue}, stream));
  return options_.device->write_flag(stream, transit.finished(), 1);
}

uint32_t PointToPoint::set_times() {
  uint32_t end = 0;
  for (Transit* transit : launching_) transit->lane->next_time = 0;
  for (Transit* transit : launching_) {
    Lane& lane = *transit->lane;
    if (!uses_stream(*transit)) continue;
    transit->first_time = lane.next_time;
    lane.next_time += transit->n_slices;
    end = std::max(end, lane.next_time);
  }
  return end;
}

// Without a stream of the user nothing is to wait.
Status PointToPoint::enqueue_on_user(device::Stream* user) {
  const auto is_direct = [user](const Transit& one) {
    return !uses_stream(one) && user != nullptr;
  };
  HETCCL_TRY(lower::for_each_part_on_user(
      launching_, is_direct,
      [&](Transit& one, lower::Part part) { return enqueue(one, part, *user); }));
  for (Transit* one : launching_) {
    if (uses_stream(*one)) continue;
    if (user != nullptr) {
      HETCCL_TRY(options_.device->write_flag(*user, one->finished(), 1));
      continue;
    }
    one->finished().word.store(1, std::memory_order_release);
    one->started().word.store(1, std::memory_order_release);
  }
  return {};
}

Status PointToPoint::enqueue(Transit& transit, lower::Part part, device::Stream& stream) {
  return interpreter_of(transit).enqueue(transit, stream, {&transit.lane->window, 1}, part);
}

Status PointToPoint::fork(device::Stream* user) {
  if (user == nullptr) return {};
  HETCCL_TRY(options_.device->record(*forked_, *user));
  for (Transit* one : launching_) {
    if (!is_first_of_stream(*one)) continue;
    HETCCL_TRY(options_.device->wait(*one->lane->stream, *forked_));
  }
  return {};
}

Status PointToPoint::join(device::Stream* user) {
  if (user == nullptr) return {};
  for (Transit* one : launching_) {
    if (!is_first_of_stream(*one)) continue;
    HETCCL_TRY(options_.device->record(*joined_, *one->lane->stream));
    HETCCL_TRY(options_.device->wait(*user, *joined_));
  }
  return {};
}

// On streams of their own: those of the lanes may be in use for what no graph records.
Status PointToPoint::capture(std::span<const Message> messages, device::Stream& user) {
  std::vector<device::Stream*> streams;
  for (const Message& message : messages) {
    if (message.peer == options_.rank) continue;
    device::Stream* const stream = lane_of(message).library->recorded.get();
    if (std::find(streams.begin(), streams.end(), stream) == streams.end())
      streams.push_back(stream);
  }
  HETCCL_TRY(options_.device->record(*forked_, user));
  for (device::Stream* stream : streams) HETCCL_TRY(options_.device->wait(*stream, *forked_));
  std::vector<std::pair<const Message*, const Message*>> ordered;  // with the other end
  HETCCL_TRY(for_each(messages, [&](const Message& message, const Message* other_end) {
    ordered.emplace_back(&message, other_end);
    return Status();
  }));
  std::stable_sort(ordered.begin(), ordered.end(), [&](const auto& a, const auto& b) {
    return place_of(options_.rank, *a.first) < place_of(options_.rank, *b.first);
  });
  for (const auto& [message, other_end] : ordered) {
    HETCCL_TRY(record(*message, other_end,
                      other_end != nullptr ? user : *lane_of(*message).library->recorded));
  }
  for (device::Stream* stream : streams) {
    HETCCL_TRY(options_.device->record(*joined_, *stream));
    HETCCL_TRY(options_.device->wait(user, *joined_));
  }
  return {};
}

Status PointToPoint::record(const Message& message, const Message* other_end,
                            device::Stream& stream) {
  Transit& transit = transits_.take(*options_.device);
  transit.message = message;
  transit.lane = &lane_of(message);
  transit.by_library = other_end == nullptr;
  Status status = lower(transit, call_of(message, other_end));
  if (status.ok()) status = transit.use_own_buffers();
  if (status.ok()) status = interpreter_of(transit).record(transit, stream);
  transits_.give_back(transit);
  return status;
}

// The work enqueued so far goes on until the abort that follows.
void PointToPoint::give_up(device::Stream* user) {
  static_cast<void>(join(user));  // of two failures the first is told
  for (Transit* one : launching_) {
    one->given_up.store(true, std::memory_order_release);
    Lane& lane = *one->lane;
    device::Stream* const last = uses_stream(*one) ? lane.stream.get() : user;
    const bool drains = last != nullptr && interpreter_of(*one).join(*last).ok() &&
                        options_.device->write_flag(*last, one->finished(), 1).ok();
    if (!drains) one->finished().word.store(1, std::memory_order_release);
  }
}

}  // namespace hetccl::exec
