#include "verify/machine.h"

#include "plan/call.h"
#include "verify/machine_parts.h"

namespace hetccl::verify {

using lower::Instruction;
using plan::Buffer;

Status Machine::run() {
  for (int rank = 0; rank < problem_.n_ranks(); ++rank) HETCCL_TRY(open(rank));
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
    for (uint32_t call = 0; call < options_.calls; ++call) check_outputs(rank, call);
  }
  return fault_;
}

Result<bool> Machine::advance(RankState& rank) {
  bool moved = false;
  for (;;) {
    HETCCL_ASSIGN(const Step step, run_next(rank));
    if (step == Step::Blocked) break;
    moved = true;
  }
  for (size_t i = 0; i < rank.lanes.size(); ++i) {
    LaneState& lane = rank.lanes[i];
    for (const auto& [queue, kind] : {std::pair(&lane.sends, lower::QueueKind::Send),
                                      std::pair(&lane.recvs, lower::QueueKind::Recv),
                                      std::pair(&lane.reads, lower::QueueKind::Acknowledge)}) {
      HETCCL_ASSIGN(const bool ran, run_lane(rank, i, *queue, lower::lane_queue(i, kind)));
      moved |= ran;
    }
    HETCCL_ASSIGN(const bool completed, complete_messages(rank, i));
    moved |= completed;
  }
  try_to_retire(rank);
  return moved;
}

// The caller's own work before the call has written the buffers.
void Machine::begin_call(RankState& rank, uint32_t call) {
  const ThreadId thread = rank.stream_thread(kUser, call);
  rank.clocks[thread].set(thread, ++rank.counts[thread]);
  rank.by_events[thread].set(thread, rank.counts[thread]);
  if (is_barrier_ && call == 0) {
    rank.clocks[thread].set(kCallers + static_cast<uint32_t>(rank.rank), 1);
  }
  const Use as{thread, rank.counts[thread], kCaller};
  const auto write = [&](const std::vector<uint32_t>& places, Buffer buffer, bool values) {
    for (size_t i = 0; i < places.size(); ++i) {
      const auto block = static_cast<uint32_t>(i / problem_.n_slices);
      const Cells::Range whole{0, cells_.size(rank.rank, {buffer, block})};
      static_cast<void>(rank.memory.write(places[i], whole, rank.clocks[thread], as));
      if (!values) continue;
      const Value value{expressions_.input(rank.rank, block),
                        tag(call, static_cast<uint32_t>(i % problem_.n_slices))};
      for (Value& cell : rank.memory.values(places[i], whole)) cell = value;
    }
  };
  const CallState& state = rank.calls[call];
  write(state.outputs, Buffer::Output, false);
  write(state.inputs, Buffer::Input,
        plan::sends(problem_.spec.collective, problem_.spec.root, rank.rank));
}

// The caller goes on to use the buffers.
Status Machine::end_call(RankState& rank, uint32_t call) {
  const ThreadId thread = rank.stream_thread(kUser, call);
  const Use as{thread, rank.counts[thread] + 1, kCaller};
  const CallState& state = rank.calls[call];
  for (const auto* places : {&state.inputs, &state.outputs}) {
    const Buffer buffer = places == &state.inputs ? Buffer::Input : Buffer::Output;
    for (size_t i = 0; i < places->size(); ++i) {
      const auto block = static_cast<uint32_t>(i / problem_.n_slices);
      const Cells::Range whole{0, cells_.size(rank.rank, {buffer, block})};
      const Use* before = rank.memory.write((*places)[i], whole, rank.clocks[thread], as);
      if (before != nullptr) return conflict(rank, kCaller, *before);
      rank.clocks[thread].set(thread, as.count);
    }
  }
  rank.counts[thread] = as.count;
  // An abort releases all words at once: events alone keep the caller's memory from what streams
  // still do.
  for (ThreadId stream = 0; stream < state.runs.size(); ++stream) {
    if (rank.by_events[thread].of(stream) >= state.runs[stream]) continue;
    return error(Code::InternalError,
                 "no event keeps rank %d's caller from what stream %u still does after an abort",
                 rank.rank, stream);
  }
  for (uint32_t other = 0; is_barrier_ && call == 0 && other < ranks_.size(); ++other) {
    if (rank.clocks[thread].of(kCallers + other) > 0) continue;
    return error(Code::InternalError, "rank %d may pass the barrier before rank %u has come",
                 rank.rank, other);
  }
  return {};
}

void Machine::try_to_retire(RankState& rank) {
  for (uint32_t call = 0; call < options_.calls; ++call) {
    CallState& state = rank.calls[call];
    if (state.retired) continue;
    if (!state.finished || state.outstanding > 0) return;
    state.retired = true;
    state.over = rank.clocks[rank.stream_thread(kUser, call)];
    for (LaneState& lane : rank.lanes) {
      // What has completed of later calls is no matter of this one, but known as well.
      state.over.join(lane.sends.completed);
      state.over.join(lane.recvs.completed);
    }
  }
}

const Clock* Machine::sync_clock(const RankState& rank, uint32_t call, const Instruction& wait,
                                 uint32_t slice) const {
  const auto& counts = rank.calls[call].syncs[wait.sync];
  const size_t count = rank.code->syncs[wait.sync].once ? 1 : slice - wait.back + 1;
  return counts.size() >= count ? &counts[count - 1] : nullptr;
}

void Machine::signal(RankState& rank, uint32_t call, lower::SyncId sync, const Clock& clock) {
  rank.calls[call].syncs[sync].push_back(clock);
}

const Clock* Machine::turn_clock(const RankState& rank, uint32_t call) const {
  static const Clock kNothing;
  if (call < options_.buffer_sets) return &kNothing;
  const CallState& before = rank.calls[call - options_.buffer_sets];
  return before.retired ? &before.over : nullptr;
}

Status run_machine(const Problem& problem, const Codes& codes, const Matching& matching,
                   const MachineOptions& options) {
  return Machine(problem, codes, matching, options).run();
}

}  // namespace hetccl::verify
