// The caller's half of messages: one call's messages, from their plans to their streams. All device
// work of a call is enqueued together.
#include <algorithm>

#include "exec/executor.h"

namespace hetccl::exec {
namespace {

// Returns the other end of a rank's message to itself: the n-th send matches the n-th receive.
const Message* other_end_of(std::span<const Message> messages, const Message& sent) {
  const auto same_lane = [&](const Message& one, bool send) {
    return one.send == send && one.peer == sent.peer;
  };
  auto number = std::count_if(messages.data(), &sent,
                              [&](const Message& one) { return same_lane(one, true); });
  return &*std::find_if(messages.begin(), messages.end(),
                        [&](const Message& one) { return same_lane(one, false) && number-- == 0; });
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

MessageOrder& order_of(const Operation& message) {
  return static_cast<MessageOrder&>(*message.order);
}

/// Returns whether the channel alone moves it, so that streams copy nothing.
bool copies_nothing(const Operation& op) {
  const MessageOrder& order = order_of(op);
  return order.needs_no_copy && (!order.registered || op.registered);
}

/// Returns whether it is enqueued on its order's stream, not on the user's.
bool uses_stream(const Operation& op) {
  return op.by_library || !copies_nothing(op);
}

/// Returns whether its launch takes longer than its transfer, and a send finds room without
/// waiting.
bool is_brief(const Operation& op) {
  const MessageOrder& order = order_of(op);
  const size_t bytes = op.message.count * size_of(op.message.type);
  return op.code->brief &&
         (!order.send || order.window == nullptr || order.window->has_room(bytes));
}

lower::Group::Member member_of(const Operation& op) {
  const MessageOrder& order = order_of(op);
  using enum lower::Group::Way;
  return {.peer = order.peer,
          .send = order.send,
          .way = op.by_library        ? Library
                 : copies_nothing(op) ? User
                                      : Stream,
          .n_slices = op.n_slices,
          .brief = is_brief(op)};
}

}  // namespace

Result<Ticket> Executor::launch(std::span<const Message> messages, TimePoint now,
                                TimePoint deadline, device::Stream* user) {
  Call times;
  times.launched = now;
  times.deadline = deadline;
  Status status = prepare(messages, times);
  if (!status.ok()) {
    for (Operation* op : launching_) operations_.give_back(*op);
    return status;
  }
  if (launching_.empty()) return Ticket();
  const Ticket ticket(launching_.front()->completion);
  status = publish();
  if (status.ok() && options_.on_published) options_.on_published();
  if (status.ok() && aborted_) status = error(ErrorCode::Aborted, "the communicator was aborted");
  if (status.ok()) status = enqueue(user);
  if (status.ok()) return ticket;
  give_up(user);
  return status;
}

template <typename Visit>
Status Executor::for_each(std::span<const Message> messages, Visit&& visit) const {
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

Status Executor::prepare(std::span<const Message> messages, const Call& times) {
  launching_.clear();
  return for_each(messages, [&](const Message& message, const Message* other_end) {
    return prepare(message, other_end, times);
  });
}

Status Executor::prepare(const Message& message, const Message* other_end, const Call& times) {
  MessageOrder& order = messages_.of(message);
  const auto give_up = [this] { return aborted_.load(); };
  HETCCL_ASSIGN(const Route::Assignment assigned, order.route.take(times.deadline, give_up));
  Operation& op = operations_.take(*options_.device);
  launching_.push_back(&op);
  op.enter(order, *launching_.front(), assigned.by_library);
  op.message = message;
  Call call = call_of(message, other_end);
  call.launched = times.launched;
  call.deadline = times.deadline;
  call.sequence = assigned.number;
  return lower(op, call);
}

Status Executor::lower(Operation& op, const Call& call) {
  MessageOrder& order = order_of(op);
  Program& program = op.by_library ? order.library->program : order.program;
  const Message& message = op.message;
  op.holds.clear();
  const size_t bytes = message.count * size_of(message.type);
  op.registered =
      order.registers && !op.by_library && options_.memory->hold(message.data, bytes, op.holds);
  HETCCL_ASSIGN(const Program::Lowered lowered, program.lower_for({.type = message.type,
                                                                   .count = message.count,
                                                                   .choice = order.choice,
                                                                   .registered = op.registered}));
  return op.prepare(lowered, call);
}

// Publishes the call before enqueueing, which may block this thread until messages have moved, or
// until an abort. A turn only comes back when its operation retires.
Status Executor::publish() {
  Status status;
  for (Operation* op : launching_) {
    MessageOrder& order = order_of(*op);
    const Status given = order.give_buffers(*op, order.launched++);
    if (given.ok() && order.registers && !op->by_library) op->hold_buffers(*options_.memory);
    if (given.ok()) continue;
    op->given_up.store(true, std::memory_order_relaxed);
    if (status.ok()) status = given;
  }
  launching_.front()->completion.left.store(static_cast<uint32_t>(launching_.size()),
                                            std::memory_order_relaxed);
  for (Operation* op : launching_) {
    op->posting = posted_++;
    if (op->order->recorder != nullptr) op->order->recorder->launch(record_of(*op));
  }
  messages_.calls.fetch_add(1);
  messages_.launch(launching_);
  return status;
}

Record Executor::record_of(const Operation& message) {
  Record record;
  record.sequence = message.posting;
  record.signature = message.call.signature;
  record.signature.root = message.message.peer;
  record.slice_elements = message.slice_elements;
  record.slices = message.n_slices;
  record.launched = message.call.launched;
  record.sends = message.message.send;
  record.by_library = message.by_library;
  record.tag = message.message.tag;
  record.number = message.call.sequence;
  return record;
}

Status Executor::enqueue(device::Stream* user) {
  group_.clear();
  for (const Operation* op : launching_) group_.add(member_of(*op));
  if (user != nullptr && group_.forks()) HETCCL_TRY(options_.device->record(*forked_, *user));
  HETCCL_TRY(group_.for_each_action(user != nullptr, [&](const lower::Group::Action& action) {
    Operation& op = *launching_[action.member];
    device::Stream* const stream = stream_of(op, user);
    return carry_out(action, stream, user, [&] {
      MessageOrder& order = order_of(op);
      return order.interpreter_of(op).enqueue(op, stream, {&order.window, 1}, action.part);
    });
  }));
  return batch_->flush();
}

// Returns the stream on which an operation is enqueued; null: nothing waits.
device::Stream* Executor::stream_of(const Operation& op, device::Stream* user) const {
  const bool on_user = !uses_stream(op) || (user != nullptr && group_.uses_user_stream());
  return on_user ? user : order_of(op).stream.get();
}

template <typename Run>
Status Executor::carry_out(const lower::Group::Action& action, device::Stream* stream,
                           device::Stream* user, Run&& run) {
  using Kind = lower::Group::Action::Kind;
  switch (action.kind) {
    case Kind::Fork:
      return options_.device->wait(*stream, *forked_);
    case Kind::Run:
      return run();
    case Kind::Join:
      return join(*stream, *user);
  }
  return {};
}

Status Executor::join(device::Stream& stream, device::Stream& user) {
  HETCCL_TRY(batch_->flush());
  HETCCL_TRY(options_.device->record(*joined_, stream));
  return options_.device->wait(user, *joined_);
}

// Captures on separate streams, because the orders' streams may be in use outside the graph.
Status Executor::capture(std::span<const Message> messages, device::Stream& user) {
  group_.clear();
  std::vector<std::pair<const Message*, const Message*>> captured;  // with the other end
  HETCCL_TRY(for_each(messages, [&](const Message& message, const Message* other_end) {
    using enum lower::Group::Way;
    group_.add({message.peer, message.send, other_end != nullptr ? User : Library});
    captured.emplace_back(&message, other_end);
    return Status();
  }));
  if (group_.forks()) HETCCL_TRY(options_.device->record(*forked_, user));
  return group_.for_each_action(true, [&](const lower::Group::Action& action) {
    const Message& message = *captured[action.member].first;
    const Message* const other_end = captured[action.member].second;
    const bool on_user = other_end != nullptr || group_.uses_user_stream();
    device::Stream& stream = on_user ? user : *messages_.of(message).library->recorded;
    // Capture only the body, once: the other sections are signals to the host.
    using enum lower::Part::Section;
    const bool records = action.part.section == (other_end != nullptr ? Prologue : Body);
    return carry_out(action, &stream, &user,
                     [&] { return records ? record(message, other_end, stream) : Status(); });
  });
}

Status Executor::record(const Message& message, const Message* other_end, device::Stream& stream) {
  Operation& op = operations_.take(*options_.device);
  op.enter(messages_.of(message), op, other_end == nullptr);
  op.message = message;
  Status status = lower(op, call_of(message, other_end));
  if (status.ok()) status = op.use_own_buffers();
  if (status.ok()) status = order_of(op).interpreter_of(op).record(op, stream);
  if (status.ok()) status = batch_->flush();
  batch_->drop();  // in case of an error
  operations_.give_back(op);
  return status;
}

// The enqueued work continues until the abort that follows.
void Executor::give_up(device::Stream* user) {
  for (Operation* one : launching_) {
    device::Stream* const last = stream_of(*one, user);
    if (user != nullptr && last != user)
      static_cast<void>(join(*last, *user));  // report the first failure
    order_of(*one).interpreter_of(*one).give_up(*one, last);
  }
}

}  // namespace hetccl::exec
