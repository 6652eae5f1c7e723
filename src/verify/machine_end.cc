// Checks at the end of a run.
#include <algorithm>

#include "plan/call.h"
#include "verify/machine_parts.h"

namespace hetccl::verify {

using plan::Buffer;

Status Machine::check_end(RankState& rank) {
  if (rank.next < rank.queue.size()) {
    const Enqueued& at = rank.queue[rank.next];
    const CallState& call = rank.calls[at.call];
    return error(ErrorCode::InternalError, "deadlock: %s never completes in slice %u of %u",
                 describe(*call.code, rank.rank, at.issue.index).c_str(), at.issue.slice,
                 call.n_slices);
  }
  for (const CallState& call : rank.calls) {
    if (call.code == nullptr) continue;
    if (!call.code->one_library_call && call.syncs[lower::kStarted].size() != 1) {
      return error(ErrorCode::InternalError, "rank %d does not tell that the call has begun",
                   rank.rank);
    }
    if (!call.finished)
      return error(ErrorCode::InternalError, "rank %d never tells that a call has ended",
                   rank.rank);
    // The next call reuses the memory of this call's words and of its host arithmetic.
    for (ThreadId thread = 0; thread < call.runs.size(); ++thread) {
      if (call.over.of(thread) >= call.runs[thread]) continue;
      return error(ErrorCode::InternalError,
                   "rank %d's stream %u may still work on the call once it is retired", rank.rank,
                   thread);
    }
  }
  for (const LaneState& lane : rank.lanes) HETCCL_TRY(check_lane_end(lane, rank.rank));
  return {};
}

Status Machine::check_lane_end(const LaneState& lane, int rank) const {
  for (const LaneQueue* queue : {&lane.sends, &lane.recvs, &lane.acknowledgements}) {
    const bool open = queue->call < calls_.size() || (queue != &lane.acknowledgements &&
                                                      queue->n_completed < queue->posted.size());
    if (open) {
      return error(ErrorCode::InternalError,
                   "deadlock: messages between ranks %d and %d never complete", rank, lane.peer);
    }
  }
  const char* fault = lane.ring == nullptr ? nullptr : lane.ring->check_end();
  if (fault == nullptr) return {};
  return error(ErrorCode::InternalError, "rank %d's ring to rank %d: the reader %s", rank,
               lane.peer, fault);
}

void Machine::check_outputs(RankState& rank, uint32_t call) {
  const Problem& problem = *calls_[call].problem;
  const CallState& state = rank.calls[call];
  if (state.code == nullptr || calls_[call].is_barrier || !problem.receives(rank.rank)) return;
  for (size_t i = 0; i < state.outputs.size(); ++i) {
    const auto block = static_cast<uint32_t>(i / state.n_slices),
               slice = static_cast<uint32_t>(i % state.n_slices);
    if (!problem.exists(rank.rank, {Buffer::Output, block}, slice)) continue;
    const uint32_t n_cells = calls_[call].cells->size(rank.rank, {Buffer::Output, block});
    const auto cells = rank.memory.values(state.outputs[i], {0, n_cells});
    for (size_t cell = 0; cell < cells.size(); ++cell) {
      const char* fault = fault_of(problem, rank.rank, block, cells[cell].node);
      if (fault == nullptr && cells[cell].slice != tag(call, slice)) fault = "is another slice's";
      if (fault == nullptr) continue;
      return note(error(ErrorCode::InternalError, "rank %d, output block %u, cell %zu of %zu %s%s",
                        rank.rank, block, cell, cells.size(), fault, where()));
    }
    if (problem.spec.collective == Collective::AllReduce) compare_outputs(rank, call, i);
  }
}

void Machine::compare_outputs(RankState& rank, uint32_t call, size_t place) {
  RankState& first = ranks_[0];
  const Cells::Range whole{0, calls_[call].cells->size(rank.rank, {Buffer::Output, 0})};
  const auto cells = rank.memory.values(rank.calls[call].outputs[place], whole);
  const auto theirs = first.memory.values(first.calls[call].outputs[place], whole);
  if (std::equal(cells.begin(), cells.end(), theirs.begin())) return;
  note(error(ErrorCode::InternalError,
             "ranks 0 and %d evaluate different expressions: their bits may differ", rank.rank));
}

const char* Machine::fault_of(const Problem& problem, int rank, uint32_t block, NodeId node) {
  const plan::Spec& spec = problem.spec;
  const auto own = static_cast<uint32_t>(rank);
  const auto is_input = [&](int of, uint32_t its_block) {
    return node == expressions_.input(of, its_block);
  };
  if (node == Expressions::kUndefined) return "was never written";
  switch (spec.collective) {
    case Collective::AllGather:
      return node == gathered(problem, block) ? nullptr : "is not that rank's input";
    case Collective::Gather:
      return is_input(static_cast<int>(block), 0) ? nullptr : "is not what that rank has for it";
    case Collective::AllToAll:
      return is_input(static_cast<int>(block), own) ? nullptr : "is not what that rank has for it";
    case Collective::Scatter:
      return is_input(spec.root, own) ? nullptr : "is not what the root has for it";
    case Collective::Broadcast:
      return is_input(spec.root, 0) ? nullptr : "is not the root's input";
    case Collective::PointToPoint:
      return is_input(spec.root, 0) ? nullptr : "is not what the sender has";
    default:
      return fault_of_sum(problem, rank, node);
  }
}

// The input of rank `block`, decoded from the same encoding on all ranks if the call is encoded.
NodeId Machine::gathered(const Problem& problem, uint32_t block) {
  const auto rank = static_cast<int>(block);
  const NodeId input = expressions_.input(rank, 0);
  if (problem.spec.encoding.is_none()) return input;
  return expressions_.decoded(expressions_.encoded(rank, input));
}

const char* Machine::fault_of_sum(const Problem& problem, int rank, NodeId node) {
  const plan::Spec& spec = problem.spec;
  const bool scatters = spec.collective == Collective::ReduceScatter;
  if (expressions_.is_encoded(node)) return "is encoded";
  // Once per hop: for a partial sum on the way to its owner, and for the sum on the way back.
  if (expressions_.roundings(node) > (scatters ? 1 : 2)) return "was encoded too often";
  if (!expressions_.is_complete(node, scatters ? static_cast<uint32_t>(rank) : 0)) {
    return "lacks a rank's contribution";
  }
  // With one rank the average is its input.
  if (problem.n_ranks() > 1 && expressions_.is_average(node) != spec.average) {
    return spec.average ? "was not averaged" : "was averaged";
  }
  if (expressions_.is_scaled(node) == spec.scale) return nullptr;
  return spec.scale ? "was not multiplied by the ranks' factors"
                    : "was multiplied by the ranks' factors";
}

Status Machine::conflict(const RankState& rank, uint32_t call, uint32_t index,
                         const Use& before) const {
  const auto name = [&](uint32_t of, uint32_t one) {
    const std::string who = one == kCaller ? format("rank %d's caller", rank.rank)
                                           : describe(*rank.calls[of].code, rank.rank, one);
    return calls_.size() > 2 || before.call != call ? who + format(" of call %u", of) : who;
  };
  return error(ErrorCode::InternalError, "nothing orders %s and %s, which share memory%s",
               name(before.call, before.index).c_str(), name(call, index).c_str(), where());
}

Status Machine::wrong(const RankState& rank, uint32_t call, uint32_t index,
                      const char* what) const {
  return error(ErrorCode::InternalError, "%s %s%s",
               describe(*rank.calls[call].code, rank.rank, index).c_str(), what, where());
}

}  // namespace hetccl::verify
