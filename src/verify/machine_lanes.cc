// Runs the lanes of a rank: posts, completions, acknowledgements.
#include <algorithm>

#include "verify/machine_parts.h"

namespace hetccl::verify {

using lower::Instruction;
using lower::Issue;
using lower::Opcode;

Result<bool> Machine::run_lane(RankState& rank, size_t lane, LaneQueue& queue,
                               lower::QueueKind kind) {
  bool moved = false;
  while (queue.call < calls_.size()) {
    const uint32_t number = rank.lanes[lane].numbers[queue.call];
    const CallState& state = rank.calls[queue.call];
    const Issue issue =
        number == kNone
            ? Issue{0, lower::kEnd}
            : queue.walk.at(*state.code, state.code->lanes[number].of(kind), state.n_slices);
    if (issue.index == lower::kEnd) {
      ++queue.call;
      queue.walk = {};
      continue;
    }
    HETCCL_ASSIGN(const Advance step, start(rank, lane, queue, kind, issue));
    if (step == Advance::Blocked) break;
    queue.walk.advance();
    moved = true;
  }
  return moved;
}

Result<Advance> Machine::start(RankState& rank, size_t lane, LaneQueue& queue,
                               lower::QueueKind kind, Issue issue) {
  const Instruction& one = rank.code(queue.call, issue.index);
  if (one.op == Opcode::Wait || one.op == Opcode::Acquire) {
    if (one.op == Opcode::Wait && issue.slice < one.back) return Advance::Done;
    const Clock* known = one.op == Opcode::Wait ? sync_clock(rank, queue.call, one, issue.slice)
                                                : turn_clock(rank, queue.call);
    if (known == nullptr) return Advance::Blocked;
    queue.clock.join(*known);
    return Advance::Done;
  }
  if (!travels(rank, queue.call, one.message, issue.slice)) return Advance::Done;
  if (one.op != Opcode::Acknowledge) {
    HETCCL_TRY(post(rank, queue, rank.lane_thread(lane, kind), issue));
    return Advance::Done;
  }
  const char* fault =
      ring_of(rank, queue.call, one.message)
          .acknowledge(ring_message(rank, queue.call, issue.slice, one.message), queue.clock);
  if (fault != nullptr) return wrong(rank, queue.call, issue.index, fault);
  return Advance::Done;
}

Status Machine::post(RankState& rank, LaneQueue& queue, ThreadId thread, Issue issue) {
  const Instruction& one = rank.code(queue.call, issue.index);
  const auto number = static_cast<uint32_t>(queue.posted.size() + 1);
  const Use as{thread, number, issue.index, queue.call};
  Posted posted{queue.call, issue, queue.clock};
  if (one.op == Opcode::SendHeader) {
    const char* fault =
        ring_of(rank, queue.call, one.message)
            .send(ring_message(rank, queue.call, issue.slice, one.message), queue.clock);
    if (fault != nullptr) return wrong(rank, queue.call, issue.index, fault);
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

// Checks the header, as the transport does: both ends mean the same message.
Status Machine::check_ends(const RankState& sender, const Posted& sent, const RankState& receiver,
                           const Posted& received) const {
  const uint16_t number = sender.code(sent.call, sent.issue.index).message;
  const auto& other_end = calls_[sent.call].matching->other_end[static_cast<size_t>(sender.rank)];
  const bool same = sent.call == received.call && sent.issue.slice == received.issue.slice &&
                    other_end[number] == receiver.code(received.call, received.issue.index).message;
  if (same) return {};
  return error(
      ErrorCode::InternalError, "%s in slice %u meets %s in slice %u",
      describe(*sender.calls[sent.call].code, sender.rank, sent.issue.index).c_str(),
      sent.issue.slice,
      describe(*receiver.calls[received.call].code, receiver.rank, received.issue.index).c_str(),
      received.issue.slice);
}

Status Machine::complete(RankState& sender, size_t lane, RankState& receiver, size_t at_peer) {
  LaneQueue &out = sender.lanes[lane].sends, &in = receiver.lanes[at_peer].recvs;
  const Posted &sent = out.posted[out.n_completed], &received = in.posted[in.n_completed];
  HETCCL_TRY(check_ends(sender, sent, receiver, received));
  const Instruction& recv = receiver.code(received.call, received.issue.index);
  const ThreadId to = receiver.lane_thread(at_peer, lower::QueueKind::Recv);
  if (calls_[sent.call].is_barrier) in.completed.join_from(sent.start, kCallers);
  if (recv.op == Opcode::Recv) {
    store(receiver, received.call, received.issue.slice, recv.dst, sent.values);
  } else {
    const Use as{to, in.n_completed + 1, received.issue.index, received.call};
    const uint16_t number = sender.code(sent.call, sent.issue.index).message;
    const char* fault = sender.lanes[lane].ring->receive(
        ring_message(sender, sent.call, sent.issue.slice, number), as);
    if (fault != nullptr) return wrong(receiver, received.call, received.issue.index, fault);
  }
  finish_message(sender, out, sender.lane_thread(lane, lower::QueueKind::Send));
  finish_message(receiver, in, to);
  return {};
}

void Machine::finish_message(RankState& rank, LaneQueue& queue, ThreadId thread) {
  const Posted& posted = queue.posted[queue.n_completed++];
  CallState& state = rank.calls[posted.call];
  queue.completed.join(posted.start);
  queue.completed.set(thread, ++rank.counts[thread]);
  --state.outstanding;
  const Instruction& one = rank.code(posted.call, posted.issue.index);
  if (one.done == lower::kNoSync) return;
  // The message's last slice also signals for the later slices.
  const uint32_t k = posted.issue.slice;
  const uint32_t count = travels(rank, posted.call, one.message, k + 1) ? k + 1 : state.n_slices;
  while (state.syncs[one.done].size() < count) {
    signal(rank, posted.call, one.done, queue.completed);
  }
}

}  // namespace hetccl::verify
