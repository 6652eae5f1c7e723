// Sets the machine up: places for all memory, and each rank's calls in one queue.
#include <algorithm>
#include <map>

#include "lower/group.h"
#include "plan/call.h"
#include "verify/machine_parts.h"

namespace hetccl::verify {

using lower::Instruction;
using lower::Issue;
using lower::Operand;
using plan::Buffer;
using plan::Region;

Machine::Machine(std::span<const Launch> launches, const MachineOptions& options)
    : options_(options),
      expressions_(launches[0].problem->n_ranks()),
      ranks_(launches[0].codes->size()) {
  uint32_t tags = 0, places = 1;
  for (const Launch& launch : launches) {
    InFlight call{launch};
    for (const InFlight& other : calls_) {
      if (other.codes == call.codes) call.cells = other.cells;
    }
    if (call.cells == nullptr) {
      cells_.push_back(std::make_unique<Cells>(*call.problem, *call.codes));
      call.cells = cells_.back().get();
    }
    const uint32_t n_slices = call.problem->most_slices();
    call.first_tag = tags;
    call.first_place = places;
    call.arrived.resize(n_slices * call.matching->groups.size());
    call.is_barrier = call.problem->spec.collective == Collective::Barrier;
    tags += n_slices;
    places += static_cast<uint32_t>(call.arrived.size());
    n_executors_ = std::max(n_executors_, call.executor + 1);
    calls_.push_back(std::move(call));
  }
}

Status Machine::open(int number) {
  RankState& rank = ranks_[static_cast<size_t>(number)];
  rank.rank = number;
  rank.n_executors = n_executors_;
  rank.sets.resize(size_t{n_executors_} * options_.buffer_sets);
  rank.calls.resize(calls_.size());
  rank.clocks.resize(size_t{lower::kStreams} * n_executors_ + calls_.size());
  rank.by_events.resize(rank.clocks.size());
  for (uint32_t call = 0; call < calls_.size(); ++call) {
    if (!calls_[call].problem->launches(number)) continue;
    open_call(rank, call);
    HETCCL_TRY(check_scratch(rank, call));
  }
  for (uint32_t first = 0, end = 0; first < calls_.size(); first = end) {
    end = first + 1;
    const uint32_t group = calls_[first].group;
    while (group != 0 && end < calls_.size() && calls_[end].group == group) ++end;
    if (group != 0)
      enqueue_group(rank, first, end);
    else
      enqueue(rank, first);
  }
  rank.counts.resize(rank.clocks.size() + 3 * rank.lanes.size());
  return {};
}

void Machine::open_call(RankState& rank, uint32_t call) {
  const auto number = static_cast<size_t>(rank.rank);
  const Problem& problem = *calls_[call].problem;
  CallState& state = rank.calls[call];
  state.code = &(*calls_[call].codes)[number];
  state.executor = calls_[call].executor;
  state.caller = rank.caller_stream(call);
  state.n_slices = problem.n_slices[number];
  state.syncs.resize(state.code->syncs.size());
  state.events.resize(state.code->syncs.size());
  state.identity = rank.memory.add(1);
  state.host = rank.memory.add(1);
  state.ring_places.assign(state.code->messages.size() * state.code->n_slots, {UINT32_MAX, 0});
  state.runs.resize(rank.clocks.size());
  for (const lower::LaneMessage& message : state.code->messages) {
    const uint32_t own = std::max(1U, problem.slices_of(rank.rank, message.region));
    state.travels.push_back(state.code->fixed_slices ? own : state.n_slices);
    state.outstanding += state.travels.back();
  }
  open_lanes(rank, call);
  map_caller(rank, call);
  map_buffers(rank, call);
}

// Fractions of blocks with different lengths would overlap, and so would blocks of two runs.
Status Machine::check_scratch(const RankState& rank, uint32_t call) const {
  if (call > 0 && calls_[call].codes == calls_[call - 1].codes) return {};
  std::map<uint32_t, std::pair<uint32_t, uint32_t>> places;
  const std::vector<Instruction>& list = rank.calls[call].code->list;
  for (uint32_t i = 0; i < list.size(); ++i) {
    bool fits = true;
    for_each_effect(list[i], calls_[call].problem->local_rank(rank.rank),
                    [&](const Operand& operand, bool, size_t) {
                      if (operand.memory != lower::Memory::Scratch) return;
                      const Region& region = operand.region;
                      for (uint32_t b = 0; b < region.blocks; ++b) {
                        const std::pair place(region.of, region.run + b);
                        const auto known = places.try_emplace(region.block + b, place).first;
                        fits = fits && known->second == place && region.run <= region.block;
                      }
                    });
    if (!fits) return wrong(rank, call, i, "keeps parts of several blocks in one");
  }
  return {};
}

void Machine::open_lanes(RankState& rank, uint32_t call) {
  CallState& state = rank.calls[call];
  for (uint32_t number = 0; number < state.code->lanes.size(); ++number) {
    const int peer = state.code->lanes[number].peer;
    auto known = std::find_if(rank.lanes.begin(), rank.lanes.end(), [&](const LaneState& lane) {
      return lane.executor == state.executor && lane.peer == peer;
    });
    if (known == rank.lanes.end()) {
      LaneState lane;
      lane.executor = state.executor;
      lane.peer = peer;
      lane.numbers.resize(calls_.size(), kNone);
      rank.lanes.push_back(std::move(lane));
      known = rank.lanes.end() - 1;
    }
    known->numbers[call] = number;
    state.lanes.push_back(static_cast<uint32_t>(known - rank.lanes.begin()));
  }
}

Status Machine::join_lanes(RankState& rank) {
  for (LaneState& lane : rank.lanes) {
    const auto& theirs = ranks_[static_cast<size_t>(lane.peer)].lanes;
    const auto back = std::find_if(theirs.begin(), theirs.end(), [&](const LaneState& other) {
      return other.executor == lane.executor && other.peer == rank.rank;
    });
    if (back == theirs.end()) {
      return error(ErrorCode::InternalError, "rank %d has a lane to rank %d, which has none to it",
                   rank.rank, lane.peer);
    }
    lane.at_peer = static_cast<size_t>(back - theirs.begin());
  }
  for (uint32_t call = 0; call < calls_.size(); ++call) HETCCL_TRY(make_rings(rank, call));
  return {};
}

// All calls of an executor must see the same window.
Status Machine::make_rings(RankState& rank, uint32_t call) {
  const CallState& state = rank.calls[call];
  const auto& targets = calls_[call].problem->targets[static_cast<size_t>(rank.rank)].lanes;
  for (size_t i = 0; i < state.lanes.size(); ++i) {
    LaneState& lane = rank.lanes[state.lanes[i]];
    if (calls_[call].problem->by_library) continue;  // the library carries its data
    const size_t bytes = targets[i].ring_bytes;
    if (lane.ring == nullptr && bytes > 0) lane.ring = std::make_unique<RingCheck>(bytes);
    if ((lane.ring == nullptr ? 0 : lane.ring->bytes()) == bytes) continue;
    return error(ErrorCode::InternalError, "rank %d's calls find different windows to rank %d",
                 rank.rank, lane.peer);
  }
  return {};
}

void Machine::enqueue_instruction(RankState& rank, uint32_t call, Issue issue) {
  const Instruction& one = rank.code(call, issue.index);
  if (lower::is_stream(one.queue)) rank.queue.push_back({call, issue});
}

void Machine::enqueue(RankState& rank, uint32_t call) {
  const CallState& state = rank.calls[call];
  if (state.code == nullptr) return;
  rank.queue.push_back({call, {}, Enqueued::Kind::Begin});
  static_cast<void>(for_each_issue(*state.code, state.n_slices, [&](Issue issue) {
    enqueue_instruction(rank, call, issue);
    return Status();
  }));
  rank.queue.push_back({call, {}, Enqueued::Kind::End});
}

// Enqueues the messages of one group call as exec does. Each direction is an executor. Unless the
// group uses the user's stream, an executor has a user stream of its own, which waits for the
// caller's stream at a fork, and the caller's waits for it at a join.
void Machine::enqueue_group(RankState& rank, uint32_t first, uint32_t end) {
  lower::Group group(rank.rank);
  std::vector<uint32_t> members;
  for (const bool sends : {true, false}) {
    for (uint32_t call = first; call < end; ++call) {
      const CallState& state = rank.calls[call];
      const Problem& problem = *calls_[call].problem;
      if (state.code == nullptr || (problem.spec.root == rank.rank) != sends) continue;
      const int peer = sends ? problem.to : problem.spec.root;
      group.add({.peer = peer,
                 .send = sends,
                 .way = way_of(rank, call),
                 .n_slices = state.n_slices,
                 .brief = state.code->brief});
      members.push_back(call);
    }
  }
  for (const uint32_t call : members) {
    CallState& state = rank.calls[call];
    state.own_stream = way_of(rank, call) != lower::Group::Way::User && !group.uses_user_stream();
    if (state.own_stream) state.caller = rank.caller_stream(first);
    rank.queue.push_back({call, {}, Enqueued::Kind::Begin});
  }
  std::vector<lower::Group::Action> actions;
  static_cast<void>(group.for_each_action(true, [&](const lower::Group::Action& action) {
    actions.push_back(action);
    return Status();
  }));
  if (options_.left_out.rank == rank.rank && !actions.empty()) {
    actions.erase(actions.begin() +
                  static_cast<std::ptrdiff_t>(options_.left_out.action % actions.size()));
  }
  for (const auto& action : actions) enqueue_action(rank, members[action.member], action);
  for (const uint32_t call : members) rank.queue.push_back({call, {}, Enqueued::Kind::End});
}

void Machine::enqueue_action(RankState& rank, uint32_t call, const lower::Group::Action& action) {
  using Kind = lower::Group::Action::Kind;
  const CallState& state = rank.calls[call];
  const auto kind = action.kind == Kind::Fork ? Enqueued::Kind::Fork : Enqueued::Kind::Join;
  if (action.kind != Kind::Run) return rank.queue.push_back({call, {}, kind});
  static_cast<void>(
      lower::for_each_issue(*state.code, state.n_slices, action.part, [&](Issue issue) {
        enqueue_instruction(rank, call, issue);
        return Status();
      }));
}

lower::Group::Way Machine::way_of(const RankState& rank, uint32_t call) const {
  using enum lower::Group::Way;
  const Problem& problem = *calls_[call].problem;
  const auto& lanes = problem.targets[static_cast<size_t>(rank.rank)].lanes;
  if (problem.by_library) return Library;
  return !lanes.empty() && lanes[0].needs_no_copy() ? User : Stream;
}

// In place, the smaller buffer is a block of the larger one (hetccl.h).
void Machine::map_caller(RankState& rank, uint32_t call) {
  CallState& state = rank.calls[call];
  const Problem& problem = *calls_[call].problem;
  const auto n = static_cast<uint32_t>(problem.n_ranks());
  const Collective collective = problem.spec.collective;
  const auto own = static_cast<uint32_t>(rank.rank);
  const bool is_root = rank.rank == problem.spec.root;
  // An all-to-all cannot be in place, and neither can a rank that uses only one buffer.
  const bool in_place = options_.in_place && collective != Collective::AllToAll &&
                        problem.receives(rank.rank) &&
                        (collective != Collective::Scatter || is_root);
  const bool gathers =
      collective == Collective::AllGather || (collective == Collective::Gather && is_root);
  const bool scatters =
      collective == Collective::ReduceScatter || (collective == Collective::Scatter && is_root);
  const uint32_t slices = state.n_slices;
  const auto add = [&](Buffer buffer, uint32_t blocks, std::vector<uint32_t>& places) {
    for (uint32_t block = 0; block < blocks; ++block) {
      const uint32_t n_cells = calls_[call].cells->size(rank.rank, {buffer, block});
      for (uint32_t k = 0; k < slices; ++k) places.push_back(rank.memory.add(n_cells));
    }
  };
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

void Machine::map_buffers(RankState& rank, uint32_t call) {
  CallState& state = rank.calls[call];
  const lower::Code& code = *state.code;
  if (code.rotates) take_turn(rank, call);
  state.scratch.assign(size_t{code.scratch_blocks} * code.n_slots, kNone);
  state.staging.assign(code.messages.size() * code.n_slots, kNone);
  // A run is one place, that of its first block.
  std::map<uint32_t*, uint32_t> n_cells;
  const auto look = [&](const Operand& operand) {
    const bool scratch = operand.memory == lower::Memory::Scratch;
    if (!scratch && operand.memory != lower::Memory::Staging) return;
    const Region& region = operand.region;
    auto& places = scratch ? state.scratch : state.staging;
    const size_t first = scratch ? region.block - region.run : operand.message;
    uint32_t& n = n_cells[&places[first * code.n_slots]];
    n = std::max(n, (region.run + region.blocks) * calls_[call].cells->size(rank.rank, region));
  };
  for (const Instruction& one : code.list) for_each_operand(one, look);
  for (const auto& [places, n] : n_cells) {
    for (uint32_t slot = 0; slot < code.n_slots; ++slot) places[slot] = rank.memory.add(n);
  }
}

void Machine::take_turn(RankState& rank, uint32_t call) {
  CallState& state = rank.calls[call];
  std::vector<uint32_t> earlier;
  for (uint32_t other = 0; other < call; ++other) {
    const CallState& had = rank.calls[other];
    if (had.set != kNone && had.executor == state.executor) earlier.push_back(other);
  }
  const uint32_t sets = options_.buffer_sets;
  state.set = state.executor * sets + static_cast<uint32_t>(earlier.size()) % sets;
  if (earlier.size() >= sets) state.before = earlier[earlier.size() - sets];
}

}  // namespace hetccl::verify
