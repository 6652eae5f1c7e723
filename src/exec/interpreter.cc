#include "exec/interpreter.h"

#include <algorithm>

namespace hetccl::exec {

using lower::Instruction;
using lower::Opcode;
using lower::QueueKind;

namespace {

// The results of calls this long leave the caches before they are read, so stores bypass the caches
// and save fetching lines only to overwrite them.
constexpr size_t kMuch = size_t{8} << 20U;

// In-place results stay in the caches, which have read that memory already.
Caching caching_of(const Operation& op, const Instruction& code, const Reduction& reduction) {
  const auto* end = reduction.srcs + reduction.n_srcs;
  const bool much = op.call.signature.count * size_of(op.call.signature.type) >= kMuch;
  const bool apart = std::find(reduction.srcs, end, reduction.dst) == end;
  return much && apart && code.dst.memory == lower::Memory::Output ? Caching::Bypass
                                                                   : Caching::Keep;
}

// Gives the signals of an instruction at once, because no stream runs it.
void signal_at_once(Operation& op, lower::Issue issue) {
  const Instruction& code = op.code->list[issue.index];
  if (code.op != Opcode::Signal && code.op != Opcode::Finish) return;
  const lower::SyncId sync = code.op == Opcode::Signal ? code.sync : lower::kFinished;
  op.flag(sync).word.store(op.counted(sync, issue.slice), std::memory_order_release);
}

}  // namespace

Interpreter::Interpreter(device::Device& device, Batch& batch, ccl::Communicator* ccl, int n_ranks)
    : device_(device), batch_(batch), ccl_(ccl), n_ranks_(n_ranks) {}

Result<std::unique_ptr<Interpreter>> Interpreter::create(device::Device& device, Batch& batch,
                                                         ccl::Communicator* ccl, int n_ranks,
                                                         std::initializer_list<QueueKind> kinds) {
  std::unique_ptr<Interpreter> made(new Interpreter(device, batch, ccl, n_ranks));
  for (const QueueKind kind : kinds) {
    const lower::QueueId queue = lower::stream_queue(kind);
    HETCCL_ASSIGN(made->own_[queue], device.create_stream());
    made->streams_[queue] = made->own_[queue].get();
  }
  HETCCL_ASSIGN(made->joined_, device.create_event());
  return made;
}

Status Interpreter::enqueue(Operation& op, device::Stream& user, std::span<Window* const> windows) {
  use(&user);
  Frame frame{op, windows};
  return lower::for_each_issue(*op.code, op.n_slices,
                               [&](lower::Issue issue) { return run_on_stream(frame, issue); });
}

Status Interpreter::enqueue(Operation& op, device::Stream* user, std::span<Window* const> windows,
                            lower::Part part) {
  use(user);
  Frame frame{op, windows};
  return lower::for_each_issue(*op.code, op.n_slices, part, [&](lower::Issue issue) {
    if (user != nullptr) return run_on_stream(frame, issue);
    signal_at_once(op, issue);
    return Status();
  });
}

Status Interpreter::run_on_stream(Frame& frame, lower::Issue issue) {
  return lower::is_stream(frame.op.code->list[issue.index].queue) ? run(frame, issue) : Status();
}

Status Interpreter::record(Operation& op, device::Stream& user) {
  if (!op.code->runs_on_user_stream()) {
    return error(ErrorCode::InternalError,
                 "a graph cannot capture work of several streams. This is a defect of hetccl: "
                 "please report it");
  }
  use(&user);
  Frame frame{op, {}};
  return lower::for_each_issue(*op.code, op.n_slices, [&](lower::Issue issue) {
    // The graph outlives the operation, so it must not touch the operation's words.
    const Opcode opcode = op.code->list[issue.index].op;
    const bool records =
        op.code->in_body(issue.index) && opcode != Opcode::Signal && opcode != Opcode::Wait;
    return records ? run_on_stream(frame, issue) : Status();
  });
}

void Interpreter::give_up(Operation& op, device::Stream* user) {
  op.given_up.store(true, std::memory_order_release);
  if (user != nullptr) static_cast<void>(join(*user));  // report the first failure
  if (!finish(op, user).ok() || !batch_.flush().ok())
    op.finished().word.store(1, std::memory_order_release);
}

// Makes `user` wait for all work given to the other streams.
Status Interpreter::join(device::Stream& user) {
  HETCCL_TRY(batch_.flush());
  for (const auto& stream : own_) {
    if (stream == nullptr) continue;
    HETCCL_TRY(device_.record(*joined_, *stream));
    HETCCL_TRY(device_.wait(user, *joined_));
  }
  return {};
}

Status Interpreter::run(Frame& frame, lower::Issue issue) {
  Operation& op = frame.op;
  const uint32_t k = issue.slice;
  const Instruction& code = op.code->list[issue.index];
  if (lower::info_of(code.op).is(lower::OpcodeInfo::kCollective)) HETCCL_TRY(batch_.flush());
  switch (code.op) {
    case Opcode::Acquire:
      if (op.turn.left == nullptr || op.turn.left->reached(op.turn.before)) return {};
      return batch_.wait_flag(stream_of(code.queue), *op.turn.left, op.turn.before);
    case Opcode::Wait:
      return wait(op, code, k);
    case Opcode::Signal:
      return signal(op, code, k);
    case Opcode::Reserve:
      return reserve(frame, code, k);
    case Opcode::Locate:
      return locate(frame, code, k);
    case Opcode::FillIdentity:
      HETCCL_TRY(batch_.flush());
      return op.identities.fill(stream_of(code.queue));
    case Opcode::Copy:
      return copy(op, code, k);
    case Opcode::Reduce:
    case Opcode::HostReduce:
      return reduce(op, code, k);
    case Opcode::CclReduce:
    case Opcode::CclBroadcast:
      return call_shards(op, code, k);
    case Opcode::CclAllReduce:
      return all_reduce(op, code, k);
    case Opcode::CclExchange:
      return exchange(op, code, k);
    case Opcode::CclBarrier:
      return ccl_->barrier(stream_of(code.queue).native());
    case Opcode::Finish:
      return finish(op, streams_[code.queue]);
    default:
      return error(ErrorCode::InternalError, "%s on a stream",
                   describe(*op.code, issue.index).c_str());
  }
}

Status Interpreter::wait(Operation& op, const Instruction& code, uint32_t slice) {
  const uint32_t count = op.awaited(code, slice);
  if (count == 0) return {};
  device::Stream& stream = stream_of(code.queue);
  const lower::Sync& sync = op.code->syncs[code.sync];
  if (!sync.event) return batch_.wait_flag(stream, op.flag(code.sync), count);
  HETCCL_TRY(batch_.flush());
  HETCCL_ASSIGN(auto* event, event_of(code.sync, (count - 1) % op.code->n_slots));
  return device_.wait(stream, *event);
}

Status Interpreter::signal(Operation& op, const Instruction& code, uint32_t slice) {
  const uint32_t count = op.counted(code.sync, slice);
  if (!op.code->syncs[code.sync].event) {
    return signal_stream(streams_[code.queue], op.flag(code.sync), count);
  }
  HETCCL_TRY(batch_.flush());
  HETCCL_ASSIGN(auto* event, event_of(code.sync, (count - 1) % op.code->n_slots));
  return device_.record(*event, stream_of(code.queue));
}

Status Interpreter::signal_stream(device::Stream* stream, device::Flag& flag, uint32_t count) {
  if (stream != nullptr) return batch_.write_flag(*stream, flag, count);
  flag.word.store(count, std::memory_order_release);
  return {};
}

Status Interpreter::finish(Operation& op, device::Stream* stream) {
  if (op.marks == nullptr) return signal_stream(stream, op.finished(), 1);
  HETCCL_TRY(batch_.flush());
  return op.marks->add(op.mark, *stream, op.call.launched);
}

Result<Window*> Interpreter::window_of(const Frame& frame, const lower::LaneMessage& message) {
  if (message.lane < frame.windows.size() && frame.windows[message.lane] != nullptr)
    return frame.windows[message.lane];
  return error(ErrorCode::InternalError,
               "a message of lane %u has no window. This is a defect of hetccl: please report it",
               unsigned{message.lane});
}

Status Interpreter::reserve(Frame& frame, const Instruction& code, uint32_t slice) {
  if (!frame.op.travels(code.message, slice)) return {};
  const lower::LaneMessage& message = frame.op.code->messages[code.message];
  HETCCL_ASSIGN(Window* const window, window_of(frame, message));
  const auto placed = window->out.place(frame.op.bytes_of(message.region, slice));
  frame.op.ring_place(code.message, slice) = window->out_memory(placed.offset);
  // Wait even if the previous message has waited, because that wait may be on another stream.
  if (!placed.needed || window->read_there().reached(*placed.needed)) return {};
  return batch_.wait_flag(stream_of(code.queue), window->read_there(), *placed.needed);
}

Status Interpreter::locate(Frame& frame, const Instruction& code, uint32_t slice) {
  if (!frame.op.travels(code.message, slice)) return {};
  const lower::LaneMessage& message = frame.op.code->messages[code.message];
  HETCCL_ASSIGN(Window* const window, window_of(frame, message));
  const auto placed = window->in.place(frame.op.bytes_of(message.region, slice));
  frame.op.ring_place(code.message, slice) = window->in_memory(placed.offset);
  return {};
}

Status Interpreter::copy(Operation& op, const Instruction& code, uint32_t slice) {
  const Span src = op.resolve(code.srcs[0], slice), dst = op.resolve(code.dst, slice);
  if (src.count == 0 || src.data == dst.data) return {};
  return batch_.copy(stream_of(code.queue), dst.data, src.data, src.bytes);
}

void Interpreter::choose_operator(device::Reduction& reduction, const Operation& op,
                                  const Instruction& code) const {
  const Divisor divisor{static_cast<uint32_t>(n_ranks_), op.code->scales_averages};
  const Combining how = combining_of(op.call.signature.op, code.average, code.scale, divisor);
  reduction.op = how.op;
  reduction.divisor = how.divisor;
  reduction.factor = op.call.factor;
}

Status Interpreter::reduce(Operation& op, const Instruction& code, uint32_t slice) {
  const Span dst = op.resolve(code.dst, slice);
  if (dst.count == 0) return {};
  device::Reduction reduction;
  reduction.dst = dst.data;
  reduction.count = dst.count;
  reduction.type = op.call.signature.type;
  choose_operator(reduction, op, code);
  static_assert(plan::kMaxReduceSources <= device::Reduction::kMaxSources);
  reduction.encoding = op.call.signature.encoding;
  for (const lower::Operand& src : code.srcs) {
    if (src.region.encoded) reduction.encoded |= 1U << reduction.n_srcs;
    reduction.srcs[reduction.n_srcs++] = op.resolve(src, slice).data;
  }
  if (code.dst.region.encoded) {
    reduction.encoded |= 1U << device::Reduction::kMaxSources;
    reduction.salt = op.call.salt;
    reduction.first_element = op.first_element(code.dst.region, slice);
    if (op.call.residual != nullptr) {
      reduction.residual = static_cast<std::byte*>(op.call.residual) +
                           reduction.first_element * size_of(reduction.type);
    }
  }
  reduction.blocks = op.call.resources.gpu_blocks;
  reduction.threads = op.call.resources.host_threads;
  reduction.caching = caching_of(op, code, reduction);
  device::Stream& stream = stream_of(code.queue);
  if (code.op == Opcode::Reduce) return batch_.reduce(stream, reduction);
  HETCCL_TRY(batch_.flush());
  return op.host_reductions.enqueue(stream, reduction);
}

Reducer Interpreter::library_reducer(const Operation& op, const Instruction& code) const {
  if (!code.scale || op.call.signature.op != RedOp::Avg) {
    return {operator_of(op.call.signature.op, code.average, code.scale), op.call.factor};
  }
  return {RedOp::PreMulSum, down_of(op.call.signature.type, static_cast<uint32_t>(n_ranks_))};
}

Status Interpreter::all_reduce(Operation& op, const Instruction& code, uint32_t slice) {
  const Span src = op.resolve(code.srcs[0], slice);
  return ccl_->all_reduce(src.data, op.resolve(code.dst, slice).data, src.count,
                          op.call.signature.type, library_reducer(op, code),
                          stream_of(code.queue).native());
}

Status Interpreter::call_shards(Operation& op, const Instruction& code, uint32_t slice) {
  const bool reduces = lower::info_of(code.op).is(lower::OpcodeInfo::kReduces);
  const bool encoded = !code.shards.empty() && code.shards.front().recv.region.encoded;
  const Signature& call = op.call.signature;
  shards_.clear();
  const std::byte* end = nullptr;  // of the previous shard
  for (const lower::Shard& shard : code.shards) {
    const Span send = op.resolve(shard.send, slice), recv = op.resolve(shard.recv, slice);
    // A rank's contribution to a reduction is as long as the result. A broadcast's input exists
    // only at the root, so take the output's length.
    const Span& common = reduces ? send : recv;
    // Contiguous shards may merge only if their layout is the same on every rank: blocks are even,
    // and the plan does not set them apart.
    const bool follows = !call.uneven && !code.apart && end != nullptr && common.data == end;
    const uint64_t count = encoded ? common.bytes : common.count;
    shards_.push_back({shard.root, send.data, recv.data, count, shard.receiver, follows});
    end = common.data == nullptr ? nullptr : common.data + common.bytes;
  }
  void* const stream = stream_of(code.queue).native();
  if (!reduces) return ccl_->broadcast(shards_, encoded ? DataType::Uint8 : call.type, stream);
  return ccl_->reduce(shards_, call.type, library_reducer(op, code), stream);
}

Status Interpreter::exchange(Operation& op, const Instruction& code, uint32_t slice) {
  if (code.whole && slice > 0) return {};
  const bool encoded = !code.transfers.empty() && code.transfers.front().operand.region.encoded;
  transfers_.clear();
  for (const lower::Transfer& transfer : code.transfers) {
    const Span span =
        code.whole ? op.resolve_whole(transfer.operand) : op.resolve(transfer.operand, slice);
    transfers_.push_back(
        {transfer.peer, transfer.send, span.data, encoded ? span.bytes : span.count});
  }
  return ccl_->exchange(transfers_, encoded ? DataType::Uint8 : op.call.signature.type,
                        stream_of(code.queue).native());
}

Result<device::Event*> Interpreter::event_of(lower::SyncId sync, uint32_t slot) {
  if (events_.size() <= sync) events_.resize(sync + 1U);
  Slots& slots = events_[sync];
  while (slots.size() <= slot) {
    HETCCL_ASSIGN(auto event, device_.create_event());
    slots.push_back(std::move(event));
  }
  return slots[slot].get();
}

}  // namespace hetccl::exec
