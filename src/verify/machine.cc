#include "verify/machine.h"

#include <algorithm>

#include "plan/call.h"
#include "verify/machine_parts.h"

namespace hetccl::verify {

using lower::Instruction;
using plan::Buffer;

Status Machine::run() {
  for (int rank = 0; rank < calls_[0].problem->n_ranks(); ++rank) HETCCL_TRY(open(rank));
  for (RankState& rank : ranks_) HETCCL_TRY(join_lanes(rank));
  for (bool moved = true; moved;) {
    moved = false;
    for (RankState& rank : ranks_) {
      HETCCL_ASSIGN(const bool advanced, advance(rank));
      moved |= advanced;
    }
  }
  for (RankState& rank : ranks_) HETCCL_TRY(check_end(rank));
  for (RankState& rank : ranks_) {
    for (uint32_t call = 0; call < calls_.size(); ++call) check_outputs(rank, call);
  }
  return fault_;
}

Result<bool> Machine::advance(RankState& rank) {
  bool moved = false;
  for (;;) {
    HETCCL_ASSIGN(const Advance step, run_next(rank));
    if (step == Advance::Blocked) break;
    moved = true;
  }
  for (size_t i = 0; i < rank.lanes.size(); ++i) {
    LaneState& lane = rank.lanes[i];
    for (const auto& [queue, kind] :
         {std::pair(&lane.sends, lower::QueueKind::Send),
          std::pair(&lane.recvs, lower::QueueKind::Recv),
          std::pair(&lane.acknowledgements, lower::QueueKind::Acknowledge)}) {
      HETCCL_ASSIGN(const bool ran, run_lane(rank, i, *queue, kind));
      moved |= ran;
    }
    HETCCL_ASSIGN(const bool completed, complete_messages(rank, i));
    moved |= completed;
  }
  retire_finished(rank);
  return moved;
}

// Before the call, the caller has written its buffers.
void Machine::begin_call(RankState& rank, uint32_t call) {
  const ThreadId thread = rank.calls[call].caller;
  rank.clocks[thread].set(thread, ++rank.counts[thread]);
  rank.by_events[thread].set(thread, rank.counts[thread]);
  if (calls_[call].is_barrier) rank.clocks[thread].set(caller_thread(call, rank.rank), 1);
  const Use as{thread, rank.counts[thread], kCaller, call};
  const CallState& state = rank.calls[call];
  const auto write = [&](const std::vector<uint32_t>& places, Buffer buffer, bool values) {
    for (size_t i = 0; i < places.size(); ++i) {
      const auto block = static_cast<uint32_t>(i / state.n_slices);
      const Cells::Range whole{0, calls_[call].cells->size(rank.rank, {buffer, block})};
      static_cast<void>(rank.memory.write(places[i], whole, rank.clocks[thread], as));
      if (!values) continue;
      const Value value{expressions_.input(rank.rank, block),
                        tag(call, static_cast<uint32_t>(i % state.n_slices))};
      for (Value& cell : rank.memory.values(places[i], whole)) cell = value;
    }
  };
  const plan::Spec& spec = calls_[call].problem->spec;
  write(state.outputs, Buffer::Output, false);
  write(state.inputs, Buffer::Input, plan::sends(spec.collective, spec.root, rank.rank));
}

// After the call, the caller uses its buffers.
Status Machine::end_call(RankState& rank, uint32_t call) {
  const ThreadId thread = rank.calls[call].caller;
  const Use as{thread, rank.counts[thread] + 1, kCaller, call};
  const CallState& state = rank.calls[call];
  for (const auto* places : {&state.inputs, &state.outputs}) {
    const Buffer buffer = places == &state.inputs ? Buffer::Input : Buffer::Output;
    for (size_t i = 0; i < places->size(); ++i) {
      const auto block = static_cast<uint32_t>(i / state.n_slices);
      const Cells::Range whole{0, calls_[call].cells->size(rank.rank, {buffer, block})};
      const Use* before = rank.memory.write((*places)[i], whole, rank.clocks[thread], as);
      if (before != nullptr) return conflict(rank, call, kCaller, *before);
      rank.clocks[thread].set(thread, as.count);
    }
  }
  rank.counts[thread] = as.count;
  // An abort releases all words at once. Then only events keep the caller from buffers that streams
  // still use.
  for (ThreadId stream = 0; stream < state.runs.size(); ++stream) {
    if (rank.by_events[thread].of(stream) >= state.runs[stream]) continue;
    return error(ErrorCode::InternalError,
                 "no event keeps rank %d's caller from what stream %u still does after an abort",
                 rank.rank, stream);
  }
  return calls_[call].is_barrier ? check_barrier(rank, call) : Status();
}

Status Machine::check_barrier(const RankState& rank, uint32_t call) const {
  const Clock& known = rank.clocks[rank.calls[call].caller];
  for (int other = 0; other < calls_[call].problem->n_ranks(); ++other) {
    if (known.of(caller_thread(call, other)) > 0) continue;
    return error(ErrorCode::InternalError, "rank %d may pass the barrier before rank %d has come",
                 rank.rank, other);
  }
  return {};
}

// Calls of an executor retire in order.
void Machine::retire_finished(RankState& rank) {
  for (uint32_t executor = 0; executor < n_executors_; ++executor) {
    const Clock* before = nullptr;
    for (uint32_t call = 0; call < calls_.size(); ++call) {
      CallState& state = rank.calls[call];
      if (state.code == nullptr || state.executor != executor) continue;
      if (!state.retired) {
        if (!state.finished || state.outstanding > 0) break;
        retire(rank, call);
        if (before != nullptr) state.over.join(*before);
      }
      before = &state.over;
    }
  }
}

void Machine::retire(RankState& rank, uint32_t call) {
  CallState& state = rank.calls[call];
  state.retired = true;
  state.over = state.syncs[lower::kFinished].back();
  for (const uint32_t lane : state.lanes) {
    for (const lower::QueueKind kind : {lower::QueueKind::Send, lower::QueueKind::Recv}) {
      const bool sends = kind == lower::QueueKind::Send;
      const LaneQueue& queue = sends ? rank.lanes[lane].sends : rank.lanes[lane].recvs;
      // Find the call's last message. Messages start in order, and those of later calls may be
      // complete too.
      uint32_t n = queue.n_completed;
      while (n > 0 && queue.posted[n - 1].call > call) --n;
      if (n == 0) continue;
      state.over.join(queue.posted[n - 1].start);
      const ThreadId thread = rank.lane_thread(lane, kind);
      state.over.set(thread, std::max(state.over.of(thread), n));
    }
  }
}

const Clock* Machine::sync_clock(const RankState& rank, uint32_t call, const Instruction& wait,
                                 uint32_t slice) const {
  const auto& counts = rank.calls[call].syncs[wait.sync];
  const size_t count = rank.calls[call].code->syncs[wait.sync].once ? 1 : slice - wait.back + 1;
  return counts.size() >= count ? &counts[count - 1] : nullptr;
}

void Machine::signal(RankState& rank, uint32_t call, lower::SyncId sync, const Clock& clock) {
  rank.calls[call].syncs[sync].push_back(clock);
}

const Clock* Machine::turn_clock(const RankState& rank, uint32_t call) const {
  static const Clock kNothing;
  if (rank.calls[call].before == kNone) return &kNothing;
  const CallState& before = rank.calls[rank.calls[call].before];
  return before.retired ? &before.over : nullptr;
}

Status run_machine(std::span<const Launch> launches, const MachineOptions& options) {
  return Machine(launches, options).run();
}

}  // namespace hetccl::verify
