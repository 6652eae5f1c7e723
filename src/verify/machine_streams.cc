// The streams of a rank: what each instruction does, calls of the library included.
#include <algorithm>

#include "verify/machine_parts.h"

namespace hetccl::verify {

using lower::Instruction;
using lower::Issue;
using lower::Opcode;
using lower::Operand;

Result<Step> Machine::run_next(RankState& rank) {
  if (rank.next == rank.queue.size()) return Step::Blocked;
  const Enqueued at = rank.queue[rank.next];
  if (at.kind == Enqueued::Kind::Begin) {
    begin_call(rank, at.call);
  } else if (at.kind == Enqueued::Kind::End) {
    HETCCL_TRY(end_call(rank, at.call));
  } else {
    HETCCL_ASSIGN(const Step step, run_stream(rank, at));
    if (step == Step::Blocked) return step;
    const lower::QueueId queue = rank.code->list[at.issue.index].queue;
    const ThreadId thread = rank.stream_thread(queue, at.call);
    finish_instruction(rank, at.call, rank.code->list[at.issue.index], thread);
  }
  rank.arrived = rank.reserved = false;
  ++rank.next;
  return Step::Done;
}

void Machine::finish_instruction(RankState& rank, uint32_t call, const Instruction& one,
                                 ThreadId thread) {
  CallState& state = rank.calls[call];
  rank.clocks[thread].set(thread, ++rank.counts[thread]);
  rank.by_events[thread].set(thread, rank.counts[thread]);
  if (one.op != Opcode::Locate) state.runs[thread] = rank.counts[thread];  // which is no work
  if (one.op == Opcode::Signal) {
    signal(rank, call, one.sync, rank.clocks[thread]);
    if (rank.code->syncs[one.sync].event) {
      state.events[one.sync].push_back(rank.by_events[thread]);
    } else {
      state.words[thread] = rank.counts[thread];
    }
  }
  if (one.op == Opcode::Finish) {
    signal(rank, call, lower::kFinished, rank.clocks[thread]);
    state.finished = true;
  }
}

Result<Step> Machine::run_stream(RankState& rank, const Enqueued& at) {
  const Instruction& one = rank.code->list[at.issue.index];
  Clock& clock = rank.clocks[rank.stream_thread(one.queue, at.call)];
  switch (one.op) {
    case Opcode::Acquire:
    case Opcode::Wait: {
      if (one.op == Opcode::Wait && at.issue.slice < one.back) return Step::Done;
      const Clock* known = one.op == Opcode::Wait ? sync_clock(rank, at.call, one, at.issue.slice)
                                                  : turn_clock(rank, at.call);
      if (known == nullptr) return Step::Blocked;
      clock.join(*known);
      if (one.op == Opcode::Wait && rank.code->syncs[one.sync].event) {
        const size_t count = rank.calls[at.call].events[one.sync].size();
        const bool once = rank.code->syncs[one.sync].once;
        const size_t wanted = once ? 1 : at.issue.slice - one.back + 1;
        rank.by_events[rank.stream_thread(one.queue, at.call)].join(
            rank.calls[at.call].events[one.sync][std::min(count, wanted) - 1]);
      }
      return Step::Done;
    }
    case Opcode::Reserve:
      return reserve(rank, at);
    case Opcode::Locate: {
      RankState& sender =
          ranks_[static_cast<size_t>(rank.lanes[rank.code->messages[one.message].lane].peer)];
      const size_t back = rank.lanes[rank.code->messages[one.message].lane].at_peer;
      const RingMessage message = ring_message(rank, at.call, at.issue.slice, one.message);
      sender.lanes[back].ring->locate(message);
      ring_place(rank, at.call, at.issue.slice, one.message) = message;
      return Step::Done;
    }
    case Opcode::FillIdentity: {
      const ThreadId thread = rank.stream_thread(one.queue, at.call);
      HETCCL_TRY(
          use(rank, at.call, at.issue, clock, {thread, rank.counts[thread] + 1, at.issue.index}));
      rank.memory.values(rank.calls[at.call].identity, {0, 1})[0] = {1, 0};
      return Step::Done;
    }
    case Opcode::Copy:
    case Opcode::Reduce:
      HETCCL_TRY(compute(rank, at));
      return Step::Done;
    default:
      if (info_of(one.op).is(lower::OpcodeInfo::kCollective)) return call_library(rank, at);
      return Step::Done;
  }
}

Result<Step> Machine::reserve(RankState& rank, const Enqueued& at) {
  const Instruction& one = rank.code->list[at.issue.index];
  const lower::Message& message = rank.code->messages[one.message];
  RingCheck& ring = *rank.lanes[message.lane].ring;
  if (!rank.reserved) {
    const ThreadId thread = rank.stream_thread(one.queue, at.call);
    rank.needed = ring.reserve(ring_message(rank, at.call, at.issue.slice, one.message),
                               bytes_of(message.region, at.issue.slice),
                               {thread, rank.counts[thread] + 1, at.issue.index});
    ring_place(rank, at.call, at.issue.slice, one.message) =
        ring_message(rank, at.call, at.issue.slice, one.message);
    rank.reserved = true;
  }
  return ring.credit() >= rank.needed ? Step::Done : Step::Blocked;
}

Status Machine::compute(RankState& rank, const Enqueued& at) {
  const Instruction& one = rank.code->list[at.issue.index];
  const ThreadId thread = rank.stream_thread(one.queue, at.call);
  HETCCL_TRY(check_itself(rank, at.call, at.issue));
  std::vector<std::vector<Value>> operands;
  HETCCL_TRY(use(rank, at.call, at.issue, rank.clocks[thread],
                 {thread, rank.counts[thread] + 1, at.issue.index}));
  for (const Operand& src : one.srcs) {
    HETCCL_ASSIGN(operands.emplace_back(), load(rank, at.call, at.issue, src, one.scale));
  }
  const std::vector<Value> values =
      one.op == Opcode::Copy ? operands[0]
                             : reduced(rank, at.issue, 0, operands, tag(at.call, at.issue.slice));
  store(rank, at.call, at.issue.slice, one.dst, values);
  return {};
}

Result<Step> Machine::call_library(RankState& rank, const Enqueued& at) {
  if (rank.code->list[at.issue.index].whole && at.issue.slice > 0) return Step::Done;
  const uint32_t group = matching_.group_of[static_cast<size_t>(rank.rank)][at.issue.index];
  const size_t n_members = matching_.groups[group].members.size();
  uint32_t& arrived = arrived_[tag(at.call, at.issue.slice) * matching_.groups.size() + group];
  if (!rank.arrived) {
    rank.arrived = true;
    if (++arrived == n_members) HETCCL_TRY(run_library(group, at.call, at.issue.slice));
  }
  return arrived == n_members ? Step::Done : Step::Blocked;
}

// The members' code and clocks in one call of a cluster's library.
RankState& Machine::member(const LibraryCall& at, size_t local) {
  const auto& cluster = problem_.topology.clusters()[static_cast<size_t>(at.group->cluster)];
  return ranks_[static_cast<size_t>(cluster.ranks[local])];
}

const Instruction& Machine::code_of(const LibraryCall& at, size_t local) {
  return member(at, local).code->list[at.group->members[local]];
}

Result<std::vector<Value>> Machine::load_of(const LibraryCall& at, size_t local,
                                            const Operand& operand) {
  return load(member(at, local), at.call, {at.slice, at.group->members[local]}, operand,
              code_of(at, 0).scale);
}

// Reads of all shards, then writes.
Status Machine::run_library(uint32_t group, uint32_t call, uint32_t slice) {
  const uint32_t now = tag(call, slice);
  // Every call of every slice evaluates in its own way.
  const auto place = static_cast<uint32_t>(now * matching_.groups.size() + group + 1);
  const LibraryCall at{&matching_.groups[group], call, slice, place};
  HETCCL_TRY(enter_library(at));
  const Instruction& first = code_of(at, 0);
  if (first.op == Opcode::CclBarrier) return {};
  if (first.op == Opcode::CclAllReduce) return all_reduce(at);
  if (first.op == Opcode::CclExchange) return exchange(at);
  std::vector<std::vector<Value>> results;
  for (size_t s = 0; s < first.shards.size(); ++s) {
    HETCCL_ASSIGN(results.emplace_back(), result_of_shard(at, s));
  }
  for (size_t i = 0; i < at.group->members.size(); ++i) {
    const Instruction& code = code_of(at, i);
    for (size_t s = 0; s < code.shards.size(); ++s) {
      const lower::Shard& shard = code.shards[s];
      const bool root = shard.root == static_cast<int>(i);
      const bool receives = shard.receiver < 0 || shard.receiver == static_cast<int>(i);
      if (first.op == Opcode::CclReduce ? root : receives) {
        store(member(at, i), call, slice, shard.recv, results[s]);
      }
    }
  }
  return {};
}

Status Machine::enter_library(const LibraryCall& at) {
  const size_t n = at.group->members.size();
  const auto clock_of = [&](size_t local) -> Clock& {
    RankState& rank = member(at, local);
    return rank.clocks[rank.stream_thread(code_of(at, local).queue, at.call)];
  };
  for (size_t i = 0; i < n && is_barrier_; ++i) {
    for (size_t j = 0; j < n; ++j) clock_of(i).join_from(clock_of(j), kCallers);
  }
  for (size_t i = 0; i < n; ++i) {
    RankState& rank = member(at, i);
    const ThreadId thread = rank.stream_thread(code_of(at, i).queue, at.call);
    for (uint32_t k = at.slice; k < at.slice + slices_of(at); ++k) {
      const Issue issue{k, at.group->members[i]};
      HETCCL_TRY(check_itself(rank, at.call, issue));
      HETCCL_TRY(
          use(rank, at.call, issue, clock_of(i), {thread, rank.counts[thread] + 1, issue.index}));
    }
  }
  return {};
}

Status Machine::all_reduce(const LibraryCall& at) {
  const size_t n = at.group->members.size();
  std::vector<std::vector<Value>> operands(n);
  for (size_t i = 0; i < n; ++i) {
    HETCCL_ASSIGN(operands[i], load_of(at, i, code_of(at, i).srcs[0]));
  }
  const auto values = reduced(member(at, 0), {at.slice, at.group->members[0]}, at.place, operands,
                              tag(at.call, at.slice));
  for (size_t i = 0; i < n; ++i)
    store(member(at, i), at.call, at.slice, code_of(at, i).dst, values);
  return {};
}

// Of whole blocks all slices, by the first one's call.
uint32_t Machine::slices_of(const LibraryCall& at) {
  return code_of(at, 0).whole ? problem_.n_slices : 1;
}

Status Machine::exchange(const LibraryCall& at) {
  for (uint32_t k = 0; k < slices_of(at); ++k) {
    HETCCL_TRY(exchange_slice({at.group, at.call, at.slice + k, at.place}));
  }
  return {};
}

// Reads all that is sent, then writes what is received.
Status Machine::exchange_slice(const LibraryCall& at) {
  const auto operand_of = [&](size_t local, uint32_t transfer) -> const Operand& {
    return code_of(at, local).transfers[transfer].operand;
  };
  std::vector<std::vector<Value>> sent;
  for (const Matching::Exchanged& one : at.group->exchanged) {
    HETCCL_ASSIGN(sent.emplace_back(), load_of(at, one.from, operand_of(one.from, one.send)));
  }
  for (size_t i = 0; i < sent.size(); ++i) {
    const Matching::Exchanged& one = at.group->exchanged[i];
    store(member(at, one.to), at.call, at.slice, operand_of(one.to, one.receive), sent[i]);
  }
  return {};
}

Result<std::vector<Value>> Machine::result_of_shard(const LibraryCall& at, size_t shard) {
  const Instruction& first = code_of(at, 0);
  const auto root = static_cast<size_t>(first.shards[shard].root);
  if (first.op == Opcode::CclBroadcast) {
    return load_of(at, root, code_of(at, root).shards[shard].send);
  }
  std::vector<std::vector<Value>> operands;
  for (size_t i = 0; i < at.group->members.size(); ++i) {
    const Operand& part = code_of(at, i).shards[shard].send;
    if (part.memory == lower::Memory::Identity) continue;
    HETCCL_ASSIGN(operands.emplace_back(), load_of(at, i, part));
  }
  const Issue issue{at.slice, at.group->members[root]};
  if (operands.empty()) return wrong(member(at, root), issue.index, "adds up nothing");
  return reduced(member(at, root), issue, at.place, operands, tag(at.call, at.slice));
}

}  // namespace hetccl::verify
