#include "verify/machine.h"

#include <algorithm>
#include <map>

#include "plan/call.h"
#include "verify/rank_state.h"

namespace hetccl::verify {
namespace {

using lower::Instruction;
using lower::Issue;
using lower::kEnd;
using lower::Opcode;
using lower::Operand;
using plan::Buffer;
using plan::Region;

constexpr lower::QueueId kUser = lower::stream_queue(lower::QueueKind::User);

/// Threads that stand for the ranks' callers, in what a barrier tells of them.
constexpr ThreadId kCallers = 1U << 30U;

enum class Step : uint8_t { Blocked, Done };

class Machine {
 public:
  Machine(const Problem& problem, const Codes& codes, const Matching& matching,
          const MachineOptions& options)
      : problem_(problem),
        codes_(codes),
        matching_(matching),
        options_(options),
        cells_(problem, codes),
        expressions_(problem.n_ranks()),
        ranks_(codes.size()),
        arrived_(size_t{options.calls} * problem.n_slices * matching.groups.size()),
        is_barrier_(problem.spec.collective == Collective::Barrier) {}

  Status run() {
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

 private:
  // --- Opening.
  Status open(int number);
  Status check_scratch(const RankState& rank) const;
  Status join_lanes(RankState& rank);
  void add_call(RankState& rank, uint32_t call);
  void map_caller(RankState& rank, CallState& state);
  void map_buffers(RankState& rank, CallState& state, uint32_t call);

  // --- Running.
  Result<bool> advance(RankState& rank);
  Result<Step> run_next(RankState& rank);
  Result<Step> run_stream(RankState& rank, const Enqueued& at);
  Result<Step> call_library(RankState& rank, const Enqueued& at);
  Status run_library(uint32_t group, uint32_t call, uint32_t slice);
  Status compute(RankState& rank, const Enqueued& at);
  Result<Step> reserve(RankState& rank, const Enqueued& at);
  Result<bool> run_lane(RankState& rank, size_t lane, LaneQueue& queue, lower::QueueId id);
  Result<Step> start(RankState& rank, size_t lane, LaneQueue& queue, lower::QueueId id,
                     Issue issue);
  Status post(RankState& rank, LaneQueue& queue, lower::QueueId id, Issue issue);
  Result<bool> complete_messages(RankState& rank, size_t lane);
  Status complete(RankState& sender, size_t lane, RankState& receiver, size_t at_peer);
  void finish_message(RankState& rank, LaneQueue& queue, lower::QueueId id);
  void begin_call(RankState& rank, uint32_t call);
  Status end_call(RankState& rank, uint32_t call);
  void try_to_retire(RankState& rank);

  // --- Syncs.
  [[nodiscard]] const Clock* sync_clock(const RankState& rank, uint32_t call,
                                        const Instruction& wait, uint32_t slice) const;
  void signal(RankState& rank, uint32_t call, lower::SyncId sync, const Clock& clock);
  [[nodiscard]] const Clock* turn_clock(const RankState& rank, uint32_t call) const;

  // --- Memory.
  [[nodiscard]] uint32_t tag(uint32_t call, uint32_t slice) const {
    return call * problem_.n_slices + slice;
  }
  [[nodiscard]] uint32_t place_of(const RankState& rank, uint32_t call, uint32_t slice,
                                  const Operand& operand) const;
  Status use(RankState& rank, uint32_t call, Issue issue, const Clock& clock, Use use);
  Status use_ring(RankState& rank, uint32_t call, Issue issue, const Operand& operand, bool writes,
                  const Clock& clock, Use use);
  Status check_itself(RankState& rank, uint32_t call, Issue issue);
  Result<std::vector<Value>> load(RankState& rank, uint32_t call, Issue issue,
                                  const Operand& operand, bool scale);
  void store(RankState& rank, uint32_t call, uint32_t slice, const Operand& operand,
             const std::vector<Value>& values);
  [[nodiscard]] RingMessage ring_message(const RankState& rank, uint32_t call, uint32_t slice,
                                         uint16_t message) const;
  RingCheck& ring_of(RankState& rank, uint16_t message);
  std::vector<Value> reduced(RankState& rank, Issue issue, uint32_t place,
                             const std::vector<std::vector<Value>>& operands, uint32_t slice);
  [[nodiscard]] size_t bytes_of(const Region& region, uint32_t slice) const;

  // --- Ends.
  Status check_end(RankState& rank);
  void check_outputs(RankState& rank, uint32_t call);
  [[nodiscard]] const char* fault_of(int rank, uint32_t block, NodeId node);
  Status conflict(const RankState& rank, uint32_t index, const Use& before) const;
  Status wrong(const RankState& rank, uint32_t index, const char* what) const;
  void note(Status fault) {
    if (fault_.ok()) fault_ = std::move(fault);
  }
  [[nodiscard]] const char* where() const { return options_.in_place ? " in place" : ""; }

  const Problem& problem_;
  const Codes& codes_;
  const Matching& matching_;
  const MachineOptions options_;
  Cells cells_;
  Expressions expressions_;
  std::vector<RankState> ranks_;
  std::vector<uint32_t> arrived_;         // by call, slice and group
  const bool is_barrier_;
  Status fault_;  // of values, the first; told unless something else is wrong
};

Status Machine::open(int number) {
  RankState& rank = ranks_[static_cast<size_t>(number)];
  rank.code = &codes_[static_cast<size_t>(number)];
  rank.rank = number;
  rank.local_rank = problem_.topology.local_rank(number);
  rank.calls.resize(options_.calls);
  rank.clocks.resize(lower::kStreams + options_.calls);
  rank.counts.resize(lower::kStreams + options_.calls + 3 * rank.code->lanes.size());
  for (const lower::Lane& lane : rank.code->lanes) {
    LaneState state;
    state.peer = lane.peer;
    rank.lanes.push_back(std::move(state));
  }
  HETCCL_TRY(check_scratch(rank));
  for (uint32_t call = 0; call < options_.calls; ++call) add_call(rank, call);
  return {};
}

// Fractions of blocks that are not equally long would overlap.
Status Machine::check_scratch(const RankState& rank) const {
  std::map<uint32_t, uint32_t> of;
  for (uint32_t i = 0; i < rank.code->list.size(); ++i) {
    bool fits = true;
    for_each_effect(rank.code->list[i], rank.local_rank, [&](const Operand& operand, bool, size_t) {
      if (operand.memory != lower::Memory::Scratch) return;
      const auto known = of.try_emplace(operand.region.block, operand.region.of).first;
      fits = fits && known->second == operand.region.of;
    });
    if (!fits) return wrong(rank, i, "keeps parts of several blocks in one");
  }
  return {};
}

Status Machine::join_lanes(RankState& rank) {
  for (size_t i = 0; i < rank.lanes.size(); ++i) {
    LaneState& lane = rank.lanes[i];
    const auto& theirs = ranks_[static_cast<size_t>(lane.peer)].lanes;
    const auto back = std::find_if(theirs.begin(), theirs.end(), [&](const LaneState& other) {
      return other.peer == rank.rank;
    });
    if (back == theirs.end()) {
      return error(Code::InternalError, "rank %d has a lane to rank %d, which has none to it",
                   rank.rank, lane.peer);
    }
    lane.at_peer = static_cast<size_t>(back - theirs.begin());
    const auto& targets = problem_.targets[static_cast<size_t>(rank.rank)].lanes;
    if (targets[i].ring_bytes > 0) lane.ring = std::make_unique<RingCheck>(targets[i].ring_bytes);
  }
  return {};
}

void Machine::add_call(RankState& rank, uint32_t call) {
  CallState& state = rank.calls[call];
  state.syncs.resize(rank.code->syncs.size());
  state.words.resize(rank.clocks.size());
  state.outstanding = size_t{rank.code->posts} * problem_.n_slices;
  map_caller(rank, state);
  map_buffers(rank, state, call);
  rank.queue.push_back({call, {}, Enqueued::Kind::Begin});
  static_cast<void>(for_each_issue(*rank.code, problem_.n_slices, [&](Issue issue) -> Status {
    if (lower::is_stream(rank.code->list[issue.index].queue)) rank.queue.push_back({call, issue});
    return {};
  }));
  rank.queue.push_back({call, {}, Enqueued::Kind::End});
}

// In place, the smaller buffer is a block of the other (hetccl.h).
void Machine::map_caller(RankState& rank, CallState& state) {
  const auto n = static_cast<uint32_t>(problem_.n_ranks());
  const Collective collective = problem_.spec.collective;
  const auto own = static_cast<uint32_t>(rank.rank);
  const bool is_root = rank.rank == problem_.spec.root;
  // Neither can an all-to-all be in place, nor is a rank that takes part with one buffer alone.
  const bool in_place =
      options_.in_place && collective != Collective::AllToAll &&
      plan::receives(collective, problem_.spec.root, rank.rank) &&
      (collective != Collective::Scatter || is_root);
  const bool gathers =
      collective == Collective::AllGather || (collective == Collective::Gather && is_root);
  const bool scatters =
      collective == Collective::ReduceScatter || (collective == Collective::Scatter && is_root);
  const auto add = [&](Buffer buffer, uint32_t blocks, std::vector<uint32_t>& places) {
    for (uint32_t block = 0; block < blocks; ++block) {
      for (uint32_t k = 0; k < problem_.n_slices; ++k) {
        places.push_back(rank.memory.add(cells_.size(rank.rank, {buffer, block})));
      }
    }
  };
  const uint32_t slices = problem_.n_slices;
  const uint32_t inputs = plan::send_blocks(collective, n),
                 outputs = plan::recv_blocks(collective, n);
  if (!in_place || !gathers) add(Buffer::Input, inputs, state.inputs);
  if (!in_place || gathers) add(Buffer::Output, outputs, state.outputs);
  if (!in_place) return;
  if (gathers) {
    const auto first = state.outputs.begin() + static_cast<std::ptrdiff_t>(own * slices);
    state.inputs.assign(first, first + slices);
  } else {
    const uint32_t from = scatters ? own * slices : 0;
    const auto first = state.inputs.begin() + static_cast<std::ptrdiff_t>(from);
    state.outputs.assign(first, first + static_cast<std::ptrdiff_t>(outputs * slices));
  }
}

void Machine::map_buffers(RankState& rank, CallState& state, uint32_t call) {
  const lower::Code& code = *rank.code;
  if (code.rotates && call >= options_.buffer_sets) {
    state.scratch = rank.calls[call - options_.buffer_sets].scratch;
    state.staging = rank.calls[call - options_.buffer_sets].staging;
    return;
  }
  state.scratch.assign(size_t{code.scratch_blocks} * code.n_slots, UINT32_MAX);
  for (const lower::Message& message : code.messages) {
    for (uint32_t slot = 0; slot < code.n_slots; ++slot) {
      state.staging.push_back(rank.memory.add(cells_.size(rank.rank, message.region)));
    }
  }
  const auto look = [&](const Operand& operand) {
    if (operand.memory != lower::Memory::Scratch) return;
    for (uint32_t slot = 0; slot < code.n_slots; ++slot) {
      uint32_t& place = state.scratch[operand.region.block * size_t{code.n_slots} + slot];
      if (place == UINT32_MAX) place = rank.memory.add(cells_.size(rank.rank, operand.region));
    }
  };
  for (const Instruction& one : code.list) {
    for (const Operand& src : one.srcs) look(src);
    look(one.dst);
    for (const lower::Shard& shard : one.shards) look(shard.send), look(shard.recv);
  }
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
                                      std::pair(&lane.reads, lower::QueueKind::Read)}) {
      HETCCL_ASSIGN(const bool ran, run_lane(rank, i, *queue, lower::lane_queue(i, kind)));
      moved |= ran;
    }
    HETCCL_ASSIGN(const bool completed, complete_messages(rank, i));
    moved |= completed;
  }
  try_to_retire(rank);
  return moved;
}

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
    rank.clocks[thread].set(thread, ++rank.counts[thread]);
    const Instruction& one = rank.code->list[at.issue.index];
    if (one.op == Opcode::Signal) {
      signal(rank, at.call, one.sync, rank.clocks[thread]);
      if (!rank.code->syncs[one.sync].event) rank.calls[at.call].words[thread] = rank.counts[thread];
    }
    if (one.op == Opcode::Finish) {
      signal(rank, at.call, lower::kFinished, rank.clocks[thread]);
      rank.calls[at.call].finished = true;
    }
  }
  rank.arrived = rank.reserved = false;
  ++rank.next;
  return Step::Done;
}

Result<Step> Machine::run_stream(RankState& rank, const Enqueued& at) {
  const Instruction& one = rank.code->list[at.issue.index];
  Clock& clock = rank.clocks[rank.stream_thread(one.queue, at.call)];
  switch (one.op) {
    case Opcode::Acquire:
    case Opcode::Wait: {
      if (one.op == Opcode::Wait && at.issue.slice < one.back) return Step::Done;
      const Clock* known = one.op == Opcode::Wait
                               ? sync_clock(rank, at.call, one, at.issue.slice)
                               : turn_clock(rank, at.call);
      if (known == nullptr) return Step::Blocked;
      clock.join(*known);
      return Step::Done;
    }
    case Opcode::Reserve:
      return reserve(rank, at);
    case Opcode::Locate: {
      RankState& sender =
          ranks_[static_cast<size_t>(rank.lanes[rank.code->messages[one.message].lane].peer)];
      const size_t back = rank.lanes[rank.code->messages[one.message].lane].at_peer;
      sender.lanes[back].ring->locate(
          ring_message(rank, at.call, at.issue.slice, one.message));
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
  const uint32_t group = matching_.group_of[static_cast<size_t>(rank.rank)][at.issue.index];
  const size_t n_members = matching_.groups[group].members.size();
  uint32_t& arrived =
      arrived_[tag(at.call, at.issue.slice) * matching_.groups.size() + group];
  if (!rank.arrived) {
    rank.arrived = true;
    if (++arrived == n_members) HETCCL_TRY(run_library(group, at.call, at.issue.slice));
  }
  return arrived == n_members ? Step::Done : Step::Blocked;
}

// Reads of all shards, then writes.
Status Machine::run_library(uint32_t group, uint32_t call, uint32_t slice) {
  const Matching::Group& members = matching_.groups[group];
  const auto& ranks = problem_.topology.clusters()[static_cast<size_t>(members.cluster)].ranks;
  const auto member = [&](size_t local) -> RankState& {
    return ranks_[static_cast<size_t>(ranks[local])];
  };
  const auto code_of = [&](size_t local) -> const Instruction& {
    return member(local).code->list[members.members[local]];
  };
  const size_t n = members.members.size();
  const auto clock_of = [&](size_t local) -> Clock& {
    return member(local).clocks[member(local).stream_thread(code_of(local).queue, call)];
  };
  for (size_t i = 0; i < n && is_barrier_; ++i) {
    for (size_t j = 0; j < n; ++j) clock_of(i).join_from(clock_of(j), kCallers);
  }
  for (size_t i = 0; i < n; ++i) {
    const Issue issue{slice, members.members[i]};
    const ThreadId thread = member(i).stream_thread(code_of(i).queue, call);
    HETCCL_TRY(check_itself(member(i), call, issue));
    HETCCL_TRY(use(member(i), call, issue, member(i).clocks[thread],
                   {thread, member(i).counts[thread] + 1, issue.index}));
  }
  const Instruction& first = code_of(0);
  const uint32_t now = tag(call, slice);
  // Every call of every slice evaluates in its own way.
  const auto place = static_cast<uint32_t>(now * matching_.groups.size() + group + 1);
  const auto load_part = [&](size_t local, const Operand& operand) {
    return load(member(local), call, {slice, members.members[local]}, operand, first.scale);
  };
  if (first.op == Opcode::CclAllReduce) {
    std::vector<std::vector<Value>> operands(n);
    for (size_t i = 0; i < n; ++i) {
      HETCCL_ASSIGN(operands[i], load_part(i, code_of(i).srcs[0]));
    }
    const auto values = reduced(member(0), {slice, members.members[0]}, place, operands, now);
    for (size_t i = 0; i < n; ++i) store(member(i), call, slice, code_of(i).dst, values);
    return {};
  }
  std::vector<std::vector<Value>> results(first.shards.size());
  for (size_t s = 0; s < first.shards.size(); ++s) {
    const auto root = static_cast<size_t>(first.shards[s].root);
    if (first.op == Opcode::CclBroadcast) {
      HETCCL_ASSIGN(results[s], load_part(root, code_of(root).shards[s].send));
      continue;
    }
    std::vector<std::vector<Value>> operands;
    for (size_t i = 0; i < n; ++i) {
      const Operand& part = code_of(i).shards[s].send;
      if (part.memory == lower::Memory::Identity) continue;
      HETCCL_ASSIGN(operands.emplace_back(), load_part(i, part));
    }
    if (operands.empty()) return wrong(member(root), members.members[root], "adds up nothing");
    results[s] = reduced(member(root), {slice, members.members[root]}, place, operands, now);
  }
  for (size_t i = 0; i < n; ++i) {
    const Instruction& code = code_of(i);
    for (size_t s = 0; s < code.shards.size(); ++s) {
      const lower::Shard& shard = code.shards[s];
      const bool root = shard.root == static_cast<int>(i);
      const bool receives = shard.receiver < 0 || shard.receiver == static_cast<int>(i);
      if (first.op == Opcode::CclReduce ? root : receives) {
        store(member(i), call, slice, shard.recv, results[s]);
      }
    }
  }
  return {};
}

Result<bool> Machine::run_lane(RankState& rank, size_t lane, LaneQueue& queue,
                               lower::QueueId id) {
  bool moved = false;
  while (queue.call < options_.calls) {
    const lower::Lane& lists = rank.code->lanes[lane];
    const lower::QueueKind kind = lower::kind_of(id);
    const auto& list = kind == lower::QueueKind::Send   ? lists.sends
                       : kind == lower::QueueKind::Recv ? lists.recvs
                                                        : lists.reads;
    const Issue issue = queue.walk.at(*rank.code, list, problem_.n_slices);
    if (issue.index == kEnd) {
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

// The caller's own work before the call has written the buffers.
void Machine::begin_call(RankState& rank, uint32_t call) {
  const ThreadId thread = rank.stream_thread(kUser, call);
  rank.clocks[thread].set(thread, ++rank.counts[thread]);
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

uint32_t Machine::place_of(const RankState& rank, uint32_t call, uint32_t slice,
                           const Operand& operand) const {
  const CallState& state = rank.calls[call];
  const uint32_t slots = rank.code->n_slots;
  switch (operand.memory) {
    case lower::Memory::Input:
      return state.inputs[operand.region.block * size_t{problem_.n_slices} + slice];
    case lower::Memory::Output:
      return state.outputs[operand.region.block * size_t{problem_.n_slices} + slice];
    case lower::Memory::Scratch:
      return state.scratch[operand.region.block * size_t{slots} + slice % slots];
    default:
      return state.staging[operand.message * size_t{slots} + slice % slots];
  }
}

// A call of the library or a kernel orders nothing but its own elements.
Status Machine::check_itself(RankState& rank, uint32_t call, Issue issue) {
  struct Access {
    uint32_t place;
    Cells::Range range;
    bool writes;
    size_t element;
  };
  const Instruction& one = rank.code->list[issue.index];
  std::vector<Access> all;
  bool clean = true;
  for_each_effect(one, rank.local_rank, [&](const Operand& operand, bool writes, size_t element) {
    if (operand.memory == lower::Memory::Identity || operand.memory == lower::Memory::Ring) return;
    const Access now{place_of(rank, call, issue.slice, operand),
                     cells_.range(rank.rank, operand.region), writes, element};
    for (const Access& other : all) {
      if (other.place != now.place || !(other.writes || writes)) continue;
      if (other.range.begin >= now.range.end || now.range.begin >= other.range.end) continue;
      const bool in_place = other.element == element && other.writes != writes &&
                            other.range.begin == now.range.begin &&
                            other.range.end == now.range.end;
      clean = clean && in_place;
    }
    all.push_back(now);
  });
  return clean ? Status() : wrong(rank, issue.index, "overwrites what it reads");
}

Status Machine::use(RankState& rank, uint32_t call, Issue issue, const Clock& clock, Use as) {
  const Instruction& one = rank.code->list[issue.index];
  const bool copies = one.op == Opcode::Copy || one.op == Opcode::CclBroadcast;
  Status status;
  std::vector<std::pair<uint32_t, Cells::Range>> read;
  for_each_effect(one, rank.local_rank, [&](const Operand& operand, bool writes, size_t) {
    if (!status.ok() || operand.memory == lower::Memory::Identity) return;
    if (operand.memory == lower::Memory::Ring) {
      status = use_ring(rank, call, issue, operand, writes, clock, as);
      return;
    }
    const uint32_t place = place_of(rank, call, issue.slice, operand);
    const Cells::Range range = cells_.range(rank.rank, operand.region);
    // A copy onto itself writes nothing.
    const auto onto_itself = [&](const auto& other) {
      return other.first == place && other.second.begin == range.begin &&
             other.second.end == range.end;
    };
    if (writes && copies && std::any_of(read.begin(), read.end(), onto_itself)) return;
    if (!writes) read.emplace_back(place, range);
    const Use* before = writes ? rank.memory.write(place, range, clock, as)
                               : rank.memory.read(place, range, clock, as);
    if (before != nullptr) status = conflict(rank, issue.index, *before);
  });
  return status;
}

// What is read there is checked where it is loaded, what is written where it is stored.
Status Machine::use_ring(RankState& rank, uint32_t call, Issue issue, const Operand& operand,
                         bool writes, const Clock& clock, Use as) {
  const RingMessage message = ring_message(rank, call, issue.slice, operand.message);
  RingCheck& ring = ring_of(rank, operand.message);
  const char* fault = writes ? ring.write(message, clock, as) : ring.read(message, clock, as);
  return fault == nullptr ? Status() : wrong(rank, issue.index, fault);
}

RingMessage Machine::ring_message(const RankState& rank, uint32_t call, uint32_t slice,
                                  uint16_t message) const {
  const uint32_t number = rank.code->messages[message].sends
                              ? message
                              : matching_.other_end[static_cast<size_t>(rank.rank)][message];
  return {tag(call, slice), static_cast<uint16_t>(number)};
}

RingCheck& Machine::ring_of(RankState& rank, uint16_t message) {
  LaneState& lane = rank.lanes[rank.code->messages[message].lane];
  return rank.code->messages[message].sends
             ? *lane.ring
             : *ranks_[static_cast<size_t>(lane.peer)].lanes[lane.at_peer].ring;
}

Result<std::vector<Value>> Machine::load(RankState& rank, uint32_t call, Issue issue,
                                         const Operand& operand, bool scale) {
  std::vector<Value> values;
  if (operand.memory == lower::Memory::Ring) {
    values = ring_of(rank, operand.message)
                 .values(ring_message(rank, call, issue.slice, operand.message));
  } else {
    const auto cells = rank.memory.values(place_of(rank, call, issue.slice, operand),
                                          cells_.range(rank.rank, operand.region));
    values.assign(cells.begin(), cells.end());
  }
  for (Value& value : values) {
    if (value.node == Expressions::kUndefined) {
      note(wrong(rank, issue.index, "reads memory that nobody has written"));
    } else if (scale) {
      value.node = expressions_.scaled(rank.rank, value.node);
    }
  }
  return values;
}

void Machine::store(RankState& rank, uint32_t call, uint32_t slice, const Operand& operand,
                    const std::vector<Value>& values) {
  if (operand.memory == lower::Memory::Ring) {
    ring_of(rank, operand.message)
        .values(ring_message(rank, call, slice, operand.message)) = values;
    return;
  }
  const auto cells = rank.memory.values(place_of(rank, call, slice, operand),
                                        cells_.range(rank.rank, operand.region));
  if (cells.size() != values.size()) {
    note(error(Code::InternalError, "rank %d stores a part of another length", rank.rank));
    return;
  }
  std::copy(values.begin(), values.end(), cells.begin());
}

// `operands[i]` is the i-th source's cells.
std::vector<Value> Machine::reduced(RankState& rank, Issue issue, uint32_t place,
                                    const std::vector<std::vector<Value>>& operands,
                                    uint32_t slice) {
  const bool average = rank.code->list[issue.index].average;
  std::vector<Value> result(operands[0].size());
  std::vector<NodeId> column(operands.size()), last;
  for (size_t cell = 0; cell < result.size(); ++cell) {
    bool whole = true;
    for (size_t i = 0; i < operands.size(); ++i) {
      whole = whole && cell < operands[i].size() && operands[i][cell].slice == slice;
      column[i] = whole ? operands[i][cell].node : Expressions::kUndefined;
    }
    if (std::find(column.begin(), column.end(), Expressions::kUndefined) != column.end()) {
      note(wrong(rank, issue.index, "adds parts of different slices"));
      continue;
    }
    // Neighbouring cells mostly hold the same.
    if (column != last) {
      result[cell] = {expressions_.reduce(place, average, column), slice};
      last = column;
    } else {
      result[cell] = result[cell - 1];
    }
  }
  if (!expressions_.fault().empty()) {
    note(wrong(rank, issue.index, expressions_.fault().c_str()));
  }
  return result;
}

size_t Machine::bytes_of(const Region& region, uint32_t slice) const {
  const uint64_t whole = problem_.geometries[0].slice_elements;
  const uint64_t real = problem_.geometries[0].n_slices;
  const uint64_t last = problem_.shape.count - std::min(problem_.shape.count, (real - 1) * whole);
  const uint64_t length = slice + 1 == problem_.n_slices ? std::min(last, whole) : whole;
  const uint64_t grain = plan::grain_of(problem_.shape.type);
  return (plan::element(region.end, length, grain) - plan::element(region.begin, length, grain)) *
         size_of(problem_.shape.type);
}

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
  return error(Code::InternalError, "%s %s%s", describe(*rank.code, rank.rank, index).c_str(),
               what, where());
}

}  // namespace

Status run_machine(const Problem& problem, const Codes& codes, const Matching& matching,
                   const MachineOptions& options) {
  return Machine(problem, codes, matching, options).run();
}

}  // namespace hetccl::verify
