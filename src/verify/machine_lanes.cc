// The lanes of a rank: posts, completions, acknowledgements.
#include <algorithm>

#include "verify/machine_parts.h"

namespace hetccl::verify {

using lower::Instruction;
using lower::Issue;
using lower::Opcode;

Result<bool> Machine::run_lane(RankState& rank, size_t lane, LaneQueue& queue, lower::QueueId id) {
  bool moved = false;
  while (queue.call < options_.calls) {
    const lower::Lane& lists = rank.code->lanes[lane];
    const lower::QueueKind kind = lower::kind_of(id);
    const auto& list = kind == lower::QueueKind::Send   ? lists.sends
                       : kind == lower::QueueKind::Recv ? lists.recvs
                                                        : lists.acknowledgements;
    const Issue issue = queue.walk.at(*rank.code, list, problem_.n_slices);
    if (issue.index == lower::kEnd) {
      ++queue.call;
      queue.walk = {};
      continue;
    }
    HETCCL_ASSIGN(const Step step, start(rank, lane, queue, id, issue));
    if (step == Step::Blocked) break;
    queue.walk.advance();
    moved = true;
  }
  return moved;
}

Result<Step> Machine::start(RankState& rank, size_t lane, LaneQueue& queue, lower::QueueId id,
                            Issue issue) {
  const Instruction& one = rank.code->list[issue.index];
  if (one.op == Opcode::Wait || one.op == Opcode::Acquire) {
    if (one.op == Opcode::Wait && issue.slice < one.back) return Step::Done;
    const Clock* known = one.op == Opcode::Wait ? sync_clock(rank, queue.call, one, issue.slice)
                                                : turn_clock(rank, queue.call);
    if (known == nullptr) return Step::Blocked;
    queue.clock.join(*known);
    return Step::Done;
  }
  if (one.op != Opcode::Acknowledge) {
    HETCCL_TRY(post(rank, queue, id, issue));
    return Step::Done;
  }
  RankState& sender = ranks_[static_cast<size_t>(rank.lanes[lane].peer)];
  const char* fault = sender.lanes[rank.lanes[lane].at_peer].ring->acknowledge(
      ring_message(rank, queue.call, issue.slice, one.message), queue.clock);
  if (fault != nullptr) return wrong(rank, issue.index, fault);
  return Step::Done;
}

Status Machine::post(RankState& rank, LaneQueue& queue, lower::QueueId id, Issue issue) {
  const Instruction& one = rank.code->list[issue.index];
  const auto number = static_cast<uint32_t>(queue.posted.size() + 1);
  const Use as{rank.lane_thread(id), number, issue.index};
  Posted posted{queue.call, issue, queue.clock};
  if (one.op == Opcode::SendHeader) {
    const char* fault =
        ring_of(rank, one.message)
            .send(ring_message(rank, queue.call, issue.slice, one.message), queue.clock);
    if (fault != nullptr) return wrong(rank, issue.index, fault);
  } else if (one.op != Opcode::RecvHeader) {
    HETCCL_TRY(use(rank, queue.call, issue, queue.clock, as));
  }
  if (one.op == Opcode::Send) {
    HETCCL_ASSIGN(posted.values, load(rank, queue.call, issue, one.srcs[0], false));
  }
  queue.posted.push_back(std::move(posted));
  return {};
}

Result<bool> Machine::complete_messages(RankState& rank, size_t lane) {
  RankState& peer = ranks_[static_cast<size_t>(rank.lanes[lane].peer)];
  const size_t back = rank.lanes[lane].at_peer;
  bool moved = false;
  const auto both = [&](LaneState& from, LaneState& to) {
    return std::min(from.sends.posted.size(), to.recvs.posted.size()) > from.sends.n_completed;
  };
  while (both(rank.lanes[lane], peer.lanes[back])) {
    HETCCL_TRY(complete(rank, lane, peer, back));
    moved = true;
  }
  while (both(peer.lanes[back], rank.lanes[lane])) {
    HETCCL_TRY(complete(peer, back, rank, lane));
    moved = true;
  }
  return moved;
}

Status Machine::complete(RankState& sender, size_t lane, RankState& receiver, size_t at_peer) {
  LaneQueue &out = sender.lanes[lane].sends, &in = receiver.lanes[at_peer].recvs;
  const Posted &sent = out.posted[out.n_completed], &received = in.posted[in.n_completed];
  const Instruction& recv = receiver.code->list[received.issue.index];
  if (is_barrier_) in.completed.join_from(sent.start, kCallers);
  if (recv.op == Opcode::Recv) {
    store(receiver, received.call, received.issue.slice, recv.dst, sent.values);
  } else {
    const Use as{receiver.lane_thread(recv.queue), in.n_completed + 1, received.issue.index};
    const Instruction& send = sender.code->list[sent.issue.index];
    const char* fault = sender.lanes[lane].ring->receive(
        ring_message(sender, sent.call, sent.issue.slice, send.message), as);
    if (fault != nullptr) return wrong(receiver, received.issue.index, fault);
  }
  finish_message(sender, out, lower::lane_queue(lane, lower::QueueKind::Send));
  finish_message(receiver, in, lower::lane_queue(at_peer, lower::QueueKind::Recv));
  return {};
}

void Machine::finish_message(RankState& rank, LaneQueue& queue, lower::QueueId id) {
  const Posted& posted = queue.posted[queue.n_completed++];
  const ThreadId thread = rank.lane_thread(id);
  queue.completed.join(posted.start);
  queue.completed.set(thread, ++rank.counts[thread]);
  --rank.calls[posted.call].outstanding;
  const lower::SyncId done = rank.code->list[posted.issue.index].done;
  if (done != lower::kNoSync) signal(rank, posted.call, done, queue.completed);
}

}  // namespace hetccl::verify
