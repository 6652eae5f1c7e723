// The caller's side of the interpreter: enqueues all device work of a collective, in the static
// order, at once.
#include <algorithm>

#include "exec/executor.h"

namespace hetccl::exec {
namespace {

// Several calls of the driver take as long as a device copies that.
constexpr size_t kMostBytesOfOneStream = size_t{256} << 10U;

uint64_t round_up(uint64_t value, uint64_t grain) {
  return (value + grain - 1) / grain * grain;
}

uint64_t longest_block(const Call& call) {
  if (!call.signature.uneven) return call.signature.count;
  uint64_t count = 0;
  for (const auto& counts : {call.input.counts, call.output.counts})
    for (const uint64_t one : counts) count = std::max(count, one);
  return count;
}

// Elements of one slice: the choice's, but no longer than the message and at most kMaxSlices of
// them.
uint64_t slice_length(const plan::Choice& choice, uint64_t count, DataType type) {
  const uint64_t grain = plan::grain_of(type);
  const uint64_t least = round_up((count + Executor::kMaxSlices - 1) / Executor::kMaxSlices, grain);
  const uint64_t wanted =
      round_up(std::max<uint64_t>(choice.slice_bytes / size_of(type), 1), grain);
  return std::min(std::max(wanted, least), round_up(std::max<uint64_t>(count, 1), grain));
}

// An average divides and a pre-multiplied sum multiplies once, in steps that say so; all others
// sum.
Reducer reducer_of(const Call& call, const plan::Step& step) {
  if (step.average) return {RedOp::Avg};
  if (step.scale) return {RedOp::PreMulSum, call.factor};
  const RedOp op = call.signature.op;
  return {op == RedOp::Avg || op == RedOp::PreMulSum ? RedOp::Sum : op};
}

}  // namespace

Result<uint64_t> Executor::launch(const Program& program, const plan::Choice& choice,
                                  const Call& call, device::Stream& user) {
  const Signature& signature = call.signature;
  const bool direct = program.is_direct();
  const uint64_t longest = longest_block(call);
  const uint64_t length = direct || !program.plan.sliced
                              ? std::max<uint64_t>(longest, 1)
                              : slice_length(choice, longest, signature.type);
  const auto slices = static_cast<uint32_t>(std::max<uint64_t>(1, (longest + length - 1) / length));
  const uint32_t slots = plan::slots(program.plan, choice.depth, slices);
  if (!call.begun) note_launch(call, length, slices);
  options_.ccl->number_calls(call.sequence);
  HETCCL_ASSIGN(Operation * op, take());
  find_windows(program);
  HETCCL_TRY(op->prepare(program, call, length, slices, slots, staged_ && !direct, lane_windows_));
  const Streams streams = streams_for(*op, user);
  if (!kernels_) HETCCL_TRY(op->prepare_host_reductions());
  HETCCL_TRY(take_buffers(*op, streams.one));  // last: who has taken a turn is launched
  if (!direct) op->list_messages(choice.depth);
  if (direct && marks_ != nullptr && !call.awaited && options_.tracer == nullptr) {
    op->marks = marks_.get();
    op->mark = marks_->next();
  } else {
    unmarked_.fetch_add(1);
    if (marks_ != nullptr) marks_->settle();  // they end in order
  }

  const uint64_t number = launched_.load(std::memory_order_relaxed);
  ring_[number % kMaxInFlight] = op;
  // Before anything is enqueued: that may block this thread until messages have moved, or until
  // an abort. Either this thread sees the abort, or the abort sees the operation.
  launched_.store(number + 1, std::memory_order_seq_cst);
  if (!direct && options_.on_published) options_.on_published();
  Status status;
  if (aborted_.load(std::memory_order_seq_cst)) {
    status = error(Code::Aborted, "the communicator was aborted");
  } else if (!call.begun) {
    status = direct ? enqueue_direct(*op, user) : enqueue(*op, choice.depth, user, streams);
  }
  if (!status.ok()) give_up(*op, user);
  Status last = op->marks != nullptr ? op->marks->add(op->mark, user, call.launched)
                                     : options_.device->write_flag(user, op->finished(), 1);
  if (!last.ok()) {
    op->given_up.store(true, std::memory_order_release);
    op->finished().word.store(1, std::memory_order_release);
  }
  if (status.ok()) status = std::move(last);
  if (!status.ok()) return status;
  return number;
}

Status Executor::enqueue_direct(Operation& op, device::Stream& user) {
  if (options_.tracer != nullptr) {
    HETCCL_TRY(options_.device->write_flag(user, op.started(), 1));
  }
  return enqueue_step(op, {0, 0}, user);
}

void Executor::note_launch(const Call& call, uint64_t slice_elements, uint32_t slices) {
  if (options_.recorder == nullptr) return;
  Record record;
  record.sequence = call.sequence;
  record.signature = call.signature;
  record.slice_elements = slice_elements;
  record.slices = slices;
  record.launched = call.launched;
  options_.recorder->launch(record);
}

Result<bool> Executor::all_reduce_at_once(const Program& program, const Call& call,
                                          device::Stream& user) {
  const Signature& signature = call.signature;
  const Reducer how = reducer_of(call, program.plan.steps[0]);
  // First: when the calls of ranks differ, each rank is asked for its own.
  note_launch(call, signature.count, 1);
  options_.ccl->number_calls(call.sequence);
  HETCCL_ASSIGN(const bool done,
                options_.ccl->all_reduce_at_once(call.send, call.recv, signature.count,
                                                 signature.type, how, user.native()));
  if (!done || options_.recorder == nullptr) return done;
  const bool failed = !options_.ccl->async_error().ok();
  options_.recorder->end(call.sequence, failed ? Record::State::Failed : Record::State::Completed,
                         call.launched);
  return done;
}

Status Executor::capture(const Program& program, const Call& call, device::Stream& user) {
  HETCCL_ASSIGN(Operation * op, take());
  const uint64_t length = std::max<uint64_t>(longest_block(call), 1);
  Status status = op->prepare(program, call, length, 1, 1, false);
  if (status.ok()) status = op->use_own_buffers();
  for (uint16_t step = 0; step < program.steps.size() && status.ok(); ++step)
    status = enqueue_step(*op, {0, step}, user);
  std::lock_guard lock(free_mutex_);
  free_.push_back(op);
  return status;
}

// What is enqueued already goes on until the abort that follows.
void Executor::give_up(Operation& op, device::Stream& user) {
  op.given_up.store(true, std::memory_order_release);
  static_cast<void>(join_streams(user));  // of two failures the first is told
}

Result<Operation*> Executor::take() {
  {
    std::lock_guard lock(free_mutex_);
    if (!free_.empty()) {
      Operation* op = free_.back();
      free_.pop_back();
      return op;
    }
  }
  operations_.push_back(std::make_unique<Operation>(*options_.device));
  return operations_.back().get();
}

// What has one slice and is short has little to overlap, and most of its time is calls of the
// driver: all of it goes onto the user's stream, in the static order, which the verifier proves to
// be safe.
Executor::Streams Executor::streams_for(const Operation& op, device::Stream& user) const {
  size_t bytes = op.slice_elements * size_of(op.call.signature.type), moved = 0;
  for (uint16_t step = 0; step < op.n_steps && op.n_slices == 1; ++step) {
    const Queue queue = op.program->steps[step].queue;
    if (queue == Queue::Send || queue == Queue::Recv) moved += op.payload({0, step}).bytes;
  }
  bytes = std::max(bytes, moved / 2);  // sent and received at once
  if (op.n_slices == 1 && bytes <= kMostBytesOfOneStream) return {&user, &user, &user, &user, true};
  return {ccl_stream_.get(), work_stream_.get(), out_stream_.get(), in_stream_.get(), false};
}

// What is short takes little, and is not to wait for anything: it has its own.
Status Executor::take_buffers(Operation& op, bool one) {
  const size_t scratch = op.scratch_bytes(), staging = op.staging_bytes();
  const bool own = one || op.program->is_direct() || scratch + staging == 0;
  if (own) return op.use_own_buffers();
  HETCCL_ASSIGN(const auto turn,
                rotation_->take(launched_.load(std::memory_order_relaxed),
                                retired_.load(std::memory_order_acquire), scratch, staging));
  op.use(turn);
  return {};
}

Status Executor::enqueue(Operation& op, uint32_t depth, device::Stream& user,
                         const Streams& streams) {
  auto& device = *options_.device;
  if (op.turn.left != nullptr && !op.turn.left->reached(op.turn.before)) {
    HETCCL_TRY(device.wait_flag(user, *op.turn.left, op.turn.before));
  }
  if (!streams.one) {
    HETCCL_TRY(device.record(*started_, user));
    for (auto* stream : {streams.ccl, streams.work, streams.out, streams.in}) {
      if (stream != nullptr) HETCCL_TRY(device.wait(*stream, *started_));
    }
  }
  HETCCL_TRY(device.write_flag(user, op.started(), 1));
  if (op.program->uses_identity) {
    const Signature& call = op.call.signature;
    HETCCL_TRY(op.identities.fill(*streams.ccl, op.slice_elements, call.type, call.op));
  }
  find_what_stays(op, depth, streams.one);
  Status status;
  plan::for_each_issue(op.program->plan, depth, op.n_slices, [&](plan::Issue issue) {
    if (status.ok()) status = enqueue_issue(op, issue, streams);
  });
  HETCCL_TRY(std::move(status));
  return join(op, user, streams);
}

Status Executor::enqueue_issue(Operation& op, plan::Issue issue, const Streams& streams) {
  const StepInfo& info = op.program->steps[issue.step];
  if (info.queue == Queue::Send || info.queue == Queue::Recv) {
    return enqueue_wire(op, issue, streams);
  }
  auto& device = *options_.device;
  auto& stream = info.queue == Queue::Ccl ? *streams.ccl : *streams.work;
  HETCCL_TRY(enqueue_waits(op, issue, stream, streams.one));
  HETCCL_TRY(take_places(op, issue, stream));
  HETCCL_TRY(enqueue_step(op, issue, stream));
  if (!streams.one) HETCCL_TRY(say_what_was_read(op, issue, stream));
  // Where all is on one stream, the transport alone may wait for it.
  const bool awaited = info.writes_flag && !(streams.one && staged_);
  if (awaited || options_.tracer != nullptr) {
    HETCCL_TRY(device.write_flag(stream, op.done_of(issue.step), issue.slice + 1));
  }
  if (info.records_event && !streams.one) {
    HETCCL_ASSIGN(auto* event, event_of(issue.step, issue.slice % op.n_slots));
    HETCCL_TRY(device.record(*event, stream));
  }
  return {};
}

// Of messages that a step makes where they leave from.
Status Executor::take_places(Operation& op, plan::Issue issue, device::Stream& stream) {
  for (const uint16_t send : op.program->steps[issue.step].makes) {
    if (op.stays[send] == 0) continue;
    const plan::Issue message = {issue.slice, send};
    HETCCL_ASSIGN(op.lies_at(message), take_place(op, message, stream));
  }
  return {};
}

// In the window, once the other end has read what lay there.
Result<std::byte*> Executor::take_place(Operation& op, plan::Issue issue, device::Stream& stream) {
  Window* window = op.window_of(issue.step);
  const auto out = window->out.place(op.payload(issue).bytes);
  // Whatever the message before has waited for: it may be on another stream.
  if (out.needed != 0 && !window->read_there().reached(out.needed)) {
    HETCCL_TRY(options_.device->wait_flag(stream, window->read_there(), out.needed));
  }
  return out.data;
}

// Of a step that reads messages where they arrived.
Status Executor::say_what_was_read(Operation& op, plan::Issue issue, device::Stream& stream) {
  for (const int recv : op.program->steps[issue.step].arrivals) {
    const auto step = static_cast<uint16_t>(recv);
    if (recv < 0 || op.stays[step] == 0) continue;
    HETCCL_TRY(options_.device->write_flag(stream, op.done_of(step), issue.slice + 1));
  }
  return {};
}

Status Executor::enqueue_wire(Operation& op, plan::Issue issue, const Streams& streams) {
  const bool send = op.program->steps[issue.step].queue == Queue::Send;
  if (!on_streams(op, issue.step)) return {};
  if (!send && op.stays[issue.step] != 0) return leave_in_place(op, issue, streams);
  HETCCL_TRY(enqueue_waits(op, issue, send ? *streams.out : *streams.in, streams.one));
  return send ? enqueue_copy_out(op, issue, *streams.out) : enqueue_copy_in(op, issue, streams);
}

// From the device to where the other rank's device, or the transport, takes it.
Status Executor::enqueue_copy_out(Operation& op, plan::Issue issue, device::Stream& stream) {
  auto& device = *options_.device;
  const auto [step, k] = std::pair(issue.step, issue.slice);
  const bool shared = op.window_of(step) != nullptr;
  if (op.stays[step] == 0) {
    const auto [data, bytes] = op.payload(issue);
    std::byte* place = op.staging_of(step, k);
    if (shared) {
      HETCCL_ASSIGN(place, take_place(op, issue, stream));
    } else if (k >= op.n_slots) {
      HETCCL_TRY(device.wait_flag(stream, op.done_of(step), k - op.n_slots + 1));
    }
    if (bytes > 0) HETCCL_TRY(device.copy_soon(stream, place, data, bytes));
  }
  return device.write_flag(stream, shared ? op.done_of(step) : op.staged_of(step), k + 1);
}

// What reads it waits for it, by itself or behind this; and says so, or the call's end does.
Status Executor::leave_in_place(Operation& op, plan::Issue issue, const Streams& streams) {
  op.lies_at(issue) = place_of(op, issue);
  if (!streams.one) return {};
  return options_.device->wait_flag(*streams.in, op.staged_of(issue.step), issue.slice + 1);
}

// Where the message of a Recv arrives that the device is to take.
std::byte* Executor::place_of(Operation& op, plan::Issue issue) {
  Window* window = op.window_of(issue.step);
  return window != nullptr ? window->in.place(op.payload(issue).bytes).data
                           : op.staging_of(issue.step, issue.slice);
}

// Arithmetic reads what arrived where it lies: on one stream always; on several where that is the
// host's own, whose copies cost as much as its arithmetic, and where what reads it comes in time.
// (A sender that waits for room waits for a slice further back than those that the ring keeps, the
// reader of which starts earlier than the sender's message: so it waits for nothing behind that.)
// For the same reason the host makes what is only sent where it leaves from, and its cluster's
// library broadcasts what came from where it arrived.
void Executor::find_what_stays(Operation& op, uint32_t depth, bool one) const {
  const plan::RankPlan& plan = op.program->plan;
  const auto lag = [&](size_t step) {
    return plan::lag(plan.steps[step].stage, plan.stages, depth);
  };
  for (uint16_t step = 0; step < op.n_steps && kernels_; ++step) {
    const StepInfo& info = op.program->steps[step];
    if (!staged_ && info.maker >= 0 && op.window_of(step) != nullptr) op.stays[step] = 1;
    if (!info.read_alone || !on_streams(op, step)) continue;
    if (staged_ && info.read_by_library) continue;  // which is made for the device's own memory
    const bool in_time =
        !staged_ && info.reader >= 0 &&
        lag(static_cast<size_t>(info.reader)) <= lag(step) + op.slices_unread(step);
    op.stays[step] = one || in_time ? 1 : 0;
  }
}

Status Executor::enqueue_copy_in(Operation& op, plan::Issue issue, const Streams& streams) {
  auto& device = *options_.device;
  auto& stream = *streams.in;
  const auto [step, k] = std::pair(issue.step, issue.slice);
  const auto [data, bytes] = op.payload(issue);
  std::byte* place = place_of(op, issue);
  HETCCL_TRY(device.wait_flag(stream, op.staged_of(step), k + 1));
  if (bytes > 0) HETCCL_TRY(device.copy_soon(stream, data, place, bytes));
  if (streams.one && staged_) return {};  // nobody waits for it
  return device.write_flag(stream, op.done_of(step), k + 1);
}

void Executor::find_windows(const Program& program) {
  lane_windows_.clear();
  for (const int peer : program.peers) {
    const auto found = std::find_if(windows_.begin(), windows_.end(),
                                    [&](const Shared& shared) { return shared.peer == peer; });
    lane_windows_.push_back(found != windows_.end() ? found->window : nullptr);
  }
}

Status Executor::enqueue_waits(Operation& op, plan::Issue issue, device::Stream& stream, bool one) {
  auto& device = *options_.device;
  const StepInfo& info = op.program->steps[issue.step];
  const auto reads = [&](uint16_t step) {
    return op.stays[step] != 0 && op.program->steps[step].reader == static_cast<int>(issue.step);
  };
  const auto enqueue_wait = [&](Wait wait, uint32_t slice) -> Status {
    if (one && (!wait.by_flag || on_streams(op, wait.step))) return {};
    if (wait.by_flag) {
      auto& flag = reads(wait.step) ? op.staged_of(wait.step) : op.done_of(wait.step);
      return device.wait_flag(stream, flag, slice + 1);
    }
    HETCCL_ASSIGN(auto* event, event_of(wait.step, slice % op.n_slots));
    return device.wait(stream, *event);
  };
  for (const Wait wait : info.deps) {
    HETCCL_TRY(enqueue_wait(wait, issue.slice));
    if (!reads(wait.step)) continue;
    // It writes what the message would have written.
    for (const Wait before : op.program->steps[wait.step].deps) {
      HETCCL_TRY(enqueue_wait(before, issue.slice));
    }
  }
  if (issue.slice < op.n_slots) return {};
  for (const Wait wait : info.recycled) {
    HETCCL_TRY(enqueue_wait(wait, issue.slice - op.n_slots));
  }
  return {};
}

Status Executor::enqueue_step(Operation& op, plan::Issue issue, device::Stream& stream) {
  const plan::Step& step = op.program->plan.steps[issue.step];
  const Signature& call = op.call.signature;
  const uint32_t k = issue.slice;
  switch (step.kind) {
    case plan::StepKind::CclReduce:
    case plan::StepKind::CclBroadcast:
      return enqueue_shards(op, issue, stream);
    case plan::StepKind::CclAllReduce: {
      const Span src = op.resolve(step.srcs[0], k);
      return options_.ccl->all_reduce(src.data, op.resolve(step.dst, k).data, src.count, call.type,
                                      reducer_of(op.call, step), stream.native());
    }
    case plan::StepKind::CclBarrier:
      return options_.ccl->barrier(stream.native());
    case plan::StepKind::Reduce:
      return enqueue_reduce(op, issue, stream);
    case plan::StepKind::Copy: {
      const Span src = op.source(issue, step.srcs[0], 0), dst = op.result(issue, step.dst);
      if (src.count == 0 || src.data == dst.data) return {};
      return options_.device->copy_soon(stream, dst.data, src.data, src.count * size_of(call.type));
    }
    case plan::StepKind::Send:
    case plan::StepKind::Recv:
      break;
  }
  return error(Code::InternalError, "plan %s: a message on a device queue",
               op.program->plan.name.c_str());
}

Status Executor::enqueue_shards(Operation& op, plan::Issue issue, device::Stream& stream) {
  const plan::Step& step = op.program->plan.steps[issue.step];
  const bool reduce = step.kind == plan::StepKind::CclReduce;
  const Signature& call = op.call.signature;
  shards_.clear();
  const std::byte* end = nullptr;  // of the shard before
  for (size_t i = 0; i < step.shards.size(); ++i) {
    const plan::ShardRegion& shard = step.shards[i];
    const Span send =
        reduce ? op.resolve(shard.send, issue.slice) : op.source(issue, shard.send, i);
    const Span recv = op.result(issue, shard.recv, i);
    // What a rank has for a reduction is as long as the result; what it lacks of a broadcast is
    // not.
    const Span& common = reduce ? send : recv;
    // Where even blocks lie is the same on every rank, where the step says so.
    const bool follows = !call.uneven && !step.apart && end != nullptr && common.data == end;
    shards_.push_back({shard.root, send.data, recv.data, common.count, shard.receiver, follows});
    end = common.data == nullptr ? nullptr : common.data + common.count * size_of(call.type);
  }
  if (!reduce) return options_.ccl->broadcast(shards_, call.type, stream.native());
  return options_.ccl->reduce(shards_, call.type, reducer_of(op.call, step), stream.native());
}

Status Executor::enqueue_reduce(Operation& op, plan::Issue issue, device::Stream& stream) {
  const plan::Step& step = op.program->plan.steps[issue.step];
  const Span dst = op.result(issue, step.dst);
  if (dst.count == 0) return {};
  const auto [red, factor] = reducer_of(op.call, step);
  device::Reduction reduction;
  reduction.dst = dst.data;
  reduction.count = dst.count;
  reduction.type = op.call.signature.type;
  reduction.op = red;
  reduction.factor = factor;
  reduction.divisor = static_cast<uint32_t>(options_.n_ranks);
  if (step.srcs.size() > device::Reduction::kMaxSources) {
    return error(Code::InternalError, "plan %s: a reduction of %zu sources",
                 op.program->plan.name.c_str(), step.srcs.size());
  }
  for (size_t i = 0; i < step.srcs.size(); ++i) {
    reduction.srcs[reduction.n_srcs++] = op.source(issue, step.srcs[i], i).data;
  }
  return kernels_ ? options_.device->reduce(stream, reduction)
                  : op.host_reductions.enqueue(stream, reduction);
}

Status Executor::join_streams(device::Stream& user) {
  auto& device = *options_.device;
  for (auto* stream :
       {ccl_stream_.get(), work_stream_.get(), out_stream_.get(), in_stream_.get()}) {
    if (stream == nullptr) continue;
    HETCCL_TRY(device.record(*joined_, *stream));
    HETCCL_TRY(device.wait(user, *joined_));
  }
  return {};
}

Status Executor::join(Operation& op, device::Stream& user, const Streams& streams) {
  if (!streams.one) HETCCL_TRY(join_streams(user));
  for (uint16_t s = 0; s < op.n_steps; ++s) {
    if (!op.program->steps[s].joined || on_streams(op, s)) continue;
    HETCCL_TRY(options_.device->wait_flag(user, op.done_of(s), op.n_slices));
  }
  return {};
}

Result<device::Event*> Executor::event_of(uint16_t step, uint32_t slot) {
  if (events_.size() <= step) events_.resize(step + 1U);
  auto& slots = events_[step];
  while (slots.size() <= slot) {
    HETCCL_ASSIGN(auto event, options_.device->create_event());
    slots.push_back(std::move(event));
  }
  return slots[slot].get();
}

}  // namespace hetccl::exec
