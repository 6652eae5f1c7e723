// Runs calls of a cluster's library, which all its ranks make together.
#include <algorithm>

#include "verify/machine_parts.h"

namespace hetccl::verify {

using lower::Instruction;
using lower::Issue;
using lower::Opcode;
using lower::Operand;

Result<Advance> Machine::call_library(RankState& rank, const Enqueued& at) {
  if (rank.code(at.call, at.issue.index).whole && at.issue.slice > 0) return Advance::Done;
  InFlight& call = calls_[at.call];
  const auto& groups = call.matching->groups;
  const uint32_t group = call.matching->group_of[static_cast<size_t>(rank.rank)][at.issue.index];
  const size_t n_members = groups[group].members.size();
  uint32_t& arrived = call.arrived[at.issue.slice * groups.size() + group];
  if (!rank.arrived) {
    rank.arrived = true;
    if (++arrived == n_members) HETCCL_TRY(run_library(group, at.call, at.issue.slice));
  }
  return arrived == n_members ? Advance::Done : Advance::Blocked;
}

// A member of a library call, and its code and clocks.
RankState& Machine::member(const LibraryCall& at, size_t local) {
  return ranks_[static_cast<size_t>(at.group->ranks[local])];
}

const Instruction& Machine::code_of(const LibraryCall& at, size_t local) {
  return member(at, local).code(at.call, at.group->members[local]);
}

Result<std::vector<Value>> Machine::load_of(const LibraryCall& at, size_t local,
                                            const Operand& operand) {
  return load(member(at, local), at.call, {at.slice, at.group->members[local]}, operand,
              code_of(at, 0).scale);
}

// Reads all shards, then writes them.
Status Machine::run_library(uint32_t group, uint32_t call, uint32_t slice) {
  const auto& groups = calls_[call].matching->groups;
  // Each slice of each call evaluates differently.
  const auto place =
      static_cast<uint32_t>(calls_[call].first_place + slice * groups.size() + group);
  const LibraryCall at{&groups[group], call, slice, place};
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
      if (info_of(first.op).is(lower::OpcodeInfo::kReduces) ? root : receives) {
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
  for (size_t i = 0; i < n && calls_[at.call].is_barrier; ++i) {
    for (size_t j = 0; j < n; ++j) clock_of(i).join_from(clock_of(j), kCallers);
  }
  for (size_t i = 0; i < n; ++i) {
    RankState& rank = member(at, i);
    const ThreadId thread = rank.stream_thread(code_of(at, i).queue, at.call);
    for (uint32_t k = at.slice; k < at.slice + slices_of(at, i); ++k) {
      const Issue issue{k, at.group->members[i]};
      HETCCL_TRY(check_itself(rank, at.call, issue));
      HETCCL_TRY(use(rank, at.call, issue, clock_of(i),
                     {thread, rank.counts[thread] + 1, issue.index, at.call}));
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
  const auto values =
      reduced(member(at, 0), at.call, {at.slice, at.group->members[0]}, at.place, operands);
  for (size_t i = 0; i < n; ++i)
    store(member(at, i), at.call, at.slice, code_of(at, i).dst, values);
  return {};
}

// A call with whole blocks moves all slices at once, in the first slice.
uint32_t Machine::slices_of(const LibraryCall& at, size_t local) {
  return code_of(at, 0).whole ? member(at, local).calls[at.call].n_slices : 1;
}

Status Machine::exchange(const LibraryCall& at) {
  uint32_t n_slices = 1;
  for (size_t i = 0; i < at.group->members.size(); ++i) {
    n_slices = std::max(n_slices, slices_of(at, i));
  }
  for (uint32_t k = 0; k < n_slices; ++k) {
    HETCCL_TRY(exchange_slice({at.group, at.call, at.slice + k, at.place}));
  }
  return {};
}

// Reads all sends, then writes all receives.
Status Machine::exchange_slice(const LibraryCall& at) {
  const auto operand_of = [&](size_t local, uint32_t transfer) -> const Operand& {
    return code_of(at, local).transfers[transfer].operand;
  };
  std::vector<std::pair<const Matching::Exchanged*, std::vector<Value>>> sent;
  for (const Matching::Exchanged& one : at.group->exchanged) {
    const Operand& from = operand_of(one.from, one.send);
    const int sender = member(at, one.from).rank;
    if (!calls_[at.call].problem->exists(sender, from.region, at.slice)) continue;
    HETCCL_ASSIGN(auto values, load_of(at, one.from, from));
    sent.emplace_back(&one, std::move(values));
  }
  for (const auto& [one, values] : sent) {
    store(member(at, one->to), at.call, at.slice, operand_of(one->to, one->receive), values);
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
  if (operands.empty()) return wrong(member(at, root), at.call, issue.index, "adds up nothing");
  return reduced(member(at, root), at.call, issue, at.place, operands);
}

}  // namespace hetccl::verify
