// Runs the streams of a rank, instruction by instruction.
#include <algorithm>

#include "verify/machine_parts.h"

namespace hetccl::verify {

using lower::Instruction;
using lower::Issue;
using lower::Opcode;
using lower::Operand;

Result<Advance> Machine::run_next(RankState& rank) {
  if (rank.next == rank.queue.size()) return Advance::Blocked;
  const Enqueued at = rank.queue[rank.next];
  switch (at.kind) {
    case Enqueued::Kind::Begin:
      begin_call(rank, at.call);
      break;
    case Enqueued::Kind::Fork:
      await_stream(rank, rank.stream_thread(kUser, at.call), rank.calls[at.call].caller);
      break;
    case Enqueued::Kind::Run: {
      HETCCL_ASSIGN(const Advance step, run_stream(rank, at));
      if (step == Advance::Blocked) return step;
      const Instruction& one = rank.code(at.call, at.issue.index);
      finish_instruction(rank, at.call, one, rank.stream_thread(one.queue, at.call));
      break;
    }
    case Enqueued::Kind::Join:
      await_stream(rank, rank.calls[at.call].caller, rank.stream_thread(kUser, at.call));
      break;
    case Enqueued::Kind::End:
      HETCCL_TRY(end_call(rank, at.call));
      break;
  }
  rank.arrived = rank.reserved = false;
  ++rank.next;
  return Advance::Done;
}

// Makes `stream` wait for `other`, by an event.
void Machine::await_stream(RankState& rank, ThreadId stream, ThreadId other) {
  rank.clocks[stream].join(rank.clocks[other]);
  rank.by_events[stream].join(rank.by_events[other]);
}

void Machine::finish_instruction(RankState& rank, uint32_t call, const Instruction& one,
                                 ThreadId thread) {
  CallState& state = rank.calls[call];
  rank.clocks[thread].set(thread, ++rank.counts[thread]);
  rank.by_events[thread].set(thread, rank.counts[thread]);
  if (one.op != Opcode::Locate) state.runs[thread] = rank.counts[thread];  // not work
  if (one.op == Opcode::Signal) {
    signal(rank, call, one.sync, rank.clocks[thread]);
    if (state.code->syncs[one.sync].event) state.events[one.sync].push_back(rank.by_events[thread]);
  }
  if (one.op == Opcode::Finish) {
    signal(rank, call, lower::kFinished, rank.clocks[thread]);
    state.finished = true;
  }
}

Result<Advance> Machine::run_stream(RankState& rank, const Enqueued& at) {
  const Instruction& one = rank.code(at.call, at.issue.index);
  const ThreadId thread = rank.stream_thread(one.queue, at.call);
  switch (one.op) {
    case Opcode::Acquire:
    case Opcode::Wait:
      return wait(rank, at);
    case Opcode::Reserve:
      return reserve(rank, at);
    case Opcode::Locate:
      locate(rank, at);
      return Advance::Done;
    case Opcode::FillIdentity:
      HETCCL_TRY(use(rank, at.call, at.issue, rank.clocks[thread],
                     {thread, rank.counts[thread] + 1, at.issue.index, at.call}));
      rank.memory.values(rank.calls[at.call].identity, {0, 1})[0] = {1, 0};
      return Advance::Done;
    case Opcode::Copy:
    case Opcode::Reduce:
    case Opcode::HostReduce:
      HETCCL_TRY(compute(rank, at));
      return Advance::Done;
    default:
      if (info_of(one.op).is(lower::OpcodeInfo::kCollective)) return call_library(rank, at);
      return Advance::Done;
  }
}

Advance Machine::wait(RankState& rank, const Enqueued& at) {
  const Instruction& one = rank.code(at.call, at.issue.index);
  if (one.op == Opcode::Wait && at.issue.slice < one.back) return Advance::Done;
  const Clock* known = one.op == Opcode::Wait ? sync_clock(rank, at.call, one, at.issue.slice)
                                              : turn_clock(rank, at.call);
  if (known == nullptr) return Advance::Blocked;
  const ThreadId thread = rank.stream_thread(one.queue, at.call);
  rank.clocks[thread].join(*known);
  const CallState& state = rank.calls[at.call];
  if (one.op == Opcode::Wait && state.code->syncs[one.sync].event) {
    const auto& events = state.events[one.sync];
    const size_t wanted = state.code->syncs[one.sync].once ? 1 : at.issue.slice - one.back + 1;
    rank.by_events[thread].join(events[std::min(events.size(), wanted) - 1]);
  }
  return Advance::Done;
}

Result<Advance> Machine::reserve(RankState& rank, const Enqueued& at) {
  const Instruction& one = rank.code(at.call, at.issue.index);
  const uint32_t k = at.issue.slice;
  if (!travels(rank, at.call, one.message, k)) return Advance::Done;
  RingCheck& ring = *rank.lane_of(at.call, one.message).ring;
  if (!rank.reserved) {
    const ThreadId thread = rank.stream_thread(one.queue, at.call);
    const RingMessage message = ring_message(rank, at.call, k, one.message);
    const plan::Region& region = rank.message(at.call, one.message).region;
    rank.needed = ring.reserve(message, calls_[at.call].problem->bytes_of(rank.rank, region, k),
                               {thread, rank.counts[thread] + 1, at.issue.index, at.call});
    ring_place(rank, at.call, k, one.message) = message;
    rank.reserved = true;
  }
  return ring.credit() >= rank.needed ? Advance::Done : Advance::Blocked;
}

void Machine::locate(RankState& rank, const Enqueued& at) {
  const uint16_t number = rank.code(at.call, at.issue.index).message;
  if (!travels(rank, at.call, number, at.issue.slice)) return;
  const RingMessage message = ring_message(rank, at.call, at.issue.slice, number);
  ring_of(rank, at.call, number).locate(message);
  ring_place(rank, at.call, at.issue.slice, number) = message;
}

Status Machine::compute(RankState& rank, const Enqueued& at) {
  const Instruction& one = rank.code(at.call, at.issue.index);
  const ThreadId thread = rank.stream_thread(one.queue, at.call);
  const bool reduces = info_of(one.op).is(lower::OpcodeInfo::kReduces);
  HETCCL_TRY(check_itself(rank, at.call, at.issue));
  std::vector<std::vector<Value>> operands;
  HETCCL_TRY(use(rank, at.call, at.issue, rank.clocks[thread],
                 {thread, rank.counts[thread] + 1, at.issue.index, at.call}));
  for (const Operand& src : one.srcs) {
    HETCCL_ASSIGN(operands.emplace_back(), load(rank, at.call, at.issue, src, one.scale));
    if (reduces && src.region.encoded)
      convert(rank, at.call, at.issue, src, false, operands.back());
  }
  std::vector<Value> values = reduces ? reduced(rank, at.call, at.issue, 0, operands) : operands[0];
  if (reduces && one.dst.region.encoded) convert(rank, at.call, at.issue, one.dst, true, values);
  store(rank, at.call, at.issue.slice, one.dst, values);
  return {};
}

}  // namespace hetccl::verify
