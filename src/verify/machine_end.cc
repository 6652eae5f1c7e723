// What must hold at the end.
#include <algorithm>

#include "plan/call.h"
#include "verify/machine_parts.h"

namespace hetccl::verify {

using plan::Buffer;

Status Machine::check_end(RankState& rank) {
  if (rank.next < rank.queue.size()) {
    const Enqueued& at = rank.queue[rank.next];
    return error(Code::InternalError, "deadlock: %s never completes in slice %u of %u",
                 describe(*rank.code, rank.rank, at.issue.index).c_str(), at.issue.slice,
                 problem_.n_slices);
  }
  for (const CallState& call : rank.calls) {
    if (!rank.code->direct && call.syncs[lower::kStarted].size() != 1) {
      return error(Code::InternalError, "rank %d does not tell that the call has begun", rank.rank);
    }
    // The next call takes the memory of its words.
    for (ThreadId thread = 0; thread < call.words.size(); ++thread) {
      if (call.over.of(thread) >= call.words[thread]) continue;
      return error(Code::InternalError,
                   "rank %d may write a sync once the call is retired: nothing orders them",
                   rank.rank);
    }
  }
  for (LaneState& lane : rank.lanes) {
    for (LaneQueue* queue : {&lane.sends, &lane.recvs, &lane.reads}) {
      const bool open = queue->call < options_.calls ||
                        (queue != &lane.reads && queue->n_completed < queue->posted.size());
      if (open) {
        return error(Code::InternalError,
                     "deadlock: messages between ranks %d and %d never complete", rank.rank,
                     lane.peer);
      }
    }
    const char* fault = lane.ring == nullptr ? nullptr : lane.ring->check_end();
    if (fault != nullptr) {
      return error(Code::InternalError, "rank %d's ring to rank %d: the reader %s", rank.rank,
                   lane.peer, fault);
    }
  }
  return {};
}

void Machine::check_outputs(RankState& rank, uint32_t call) {
  const plan::Spec& spec = problem_.spec;
  if (spec.collective == Collective::Barrier) return;
  if (!plan::receives(spec.collective, spec.root, rank.rank)) return;
  const auto& places = rank.calls[call].outputs;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto block = static_cast<uint32_t>(i / problem_.n_slices),
               slice = static_cast<uint32_t>(i % problem_.n_slices);
    const uint32_t n_cells = cells_.size(rank.rank, {Buffer::Output, block});
    const auto cells = rank.memory.values(places[i], {0, n_cells});
    for (size_t cell = 0; cell < cells.size(); ++cell) {
      const char* fault = fault_of(rank.rank, block, cells[cell].node);
      if (fault == nullptr && cells[cell].slice != tag(call, slice)) fault = "is another slice's";
      if (fault == nullptr) continue;
      return note(error(Code::InternalError, "rank %d, output block %u, cell %zu of %zu %s%s",
                        rank.rank, block, cell, cells.size(), fault, where()));
    }
    if (spec.collective != Collective::AllReduce || rank.rank == 0) continue;
    RankState& first = ranks_[0];
    const auto theirs = first.memory.values(first.calls[call].outputs[i], {0, n_cells});
    if (!std::equal(cells.begin(), cells.end(), theirs.begin())) {
      return note(error(Code::InternalError,
                        "ranks 0 and %d evaluate different expressions: their bits may differ",
                        rank.rank));
    }
  }
}

const char* Machine::fault_of(int rank, uint32_t block, NodeId node) {
  const plan::Spec& spec = problem_.spec;
  if (node == Expressions::kUndefined) return "was never written";
  if (spec.collective == Collective::AllGather) {
    return node == expressions_.input(static_cast<int>(block), 0) ? nullptr
                                                                  : "is not that rank's input";
  }
  if (spec.collective == Collective::Gather || spec.collective == Collective::AllToAll) {
    const bool one = spec.collective == Collective::Gather;
    const NodeId wanted =
        expressions_.input(static_cast<int>(block), one ? 0 : static_cast<uint32_t>(rank));
    return node == wanted ? nullptr : "is not what that rank has for it";
  }
  if (spec.collective == Collective::Scatter) {
    const NodeId wanted = expressions_.input(spec.root, static_cast<uint32_t>(rank));
    return node == wanted ? nullptr : "is not what the root has for it";
  }
  if (spec.collective == Collective::Broadcast) {
    return node == expressions_.input(spec.root, 0) ? nullptr : "is not the root's input";
  }
  const bool scatters = spec.collective == Collective::ReduceScatter;
  if (!expressions_.is_complete(node, scatters ? static_cast<uint32_t>(rank) : 0)) {
    return "lacks a rank's contribution";
  }
  // One rank's average is its input.
  if (problem_.n_ranks() > 1 && expressions_.is_average(node) != spec.average) {
    return spec.average ? "was not averaged" : "was averaged";
  }
  if (expressions_.is_scaled(node) == spec.scale) return nullptr;
  return spec.scale ? "was not multiplied by the ranks' factors"
                    : "was multiplied by the ranks' factors";
}

Status Machine::conflict(const RankState& rank, uint32_t index, const Use& before) const {
  const auto name = [&](uint32_t one) {
    return one == kCaller ? format("rank %d's caller", rank.rank)
                          : describe(*rank.code, rank.rank, one);
  };
  return error(Code::InternalError, "nothing orders %s and %s, which share memory%s",
               name(before.index).c_str(), name(index).c_str(), where());
}

Status Machine::wrong(const RankState& rank, uint32_t index, const char* what) const {
  return error(Code::InternalError, "%s %s%s", describe(*rank.code, rank.rank, index).c_str(), what,
               where());
}

}  // namespace hetccl::verify
