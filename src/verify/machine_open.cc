// How the machine begins: places for all memory, the calls of each rank in one queue.
#include <algorithm>
#include <map>

#include "plan/call.h"
#include "verify/machine_parts.h"

namespace hetccl::verify {

using lower::Instruction;
using lower::Issue;
using lower::Operand;
using plan::Buffer;
using plan::Region;

Status Machine::open(int number) {
  RankState& rank = ranks_[static_cast<size_t>(number)];
  rank.code = &codes_[static_cast<size_t>(number)];
  rank.rank = number;
  rank.local_rank = problem_.topology.local_rank(number);
  rank.calls.resize(options_.calls);
  rank.clocks.resize(lower::kStreams + options_.calls);
  rank.by_events.resize(rank.clocks.size());
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

// Fractions of blocks that are not equally long would overlap; so would blocks of two runs.
Status Machine::check_scratch(const RankState& rank) const {
  std::map<uint32_t, std::pair<uint32_t, uint32_t>> places;
  for (uint32_t i = 0; i < rank.code->list.size(); ++i) {
    bool fits = true;
    for_each_effect(rank.code->list[i], rank.local_rank, [&](const Operand& operand, bool, size_t) {
      if (operand.memory != lower::Memory::Scratch) return;
      const Region& region = operand.region;
      for (uint32_t b = 0; b < region.blocks; ++b) {
        const std::pair place(region.of, region.run + b);
        const auto known = places.try_emplace(region.block + b, place).first;
        fits = fits && known->second == place && region.run <= region.block;
      }
    });
    if (!fits) return wrong(rank, i, "keeps parts of several blocks in one");
  }
  return {};
}

Status Machine::join_lanes(RankState& rank) {
  for (size_t i = 0; i < rank.lanes.size(); ++i) {
    LaneState& lane = rank.lanes[i];
    const auto& theirs = ranks_[static_cast<size_t>(lane.peer)].lanes;
    const auto back = std::find_if(theirs.begin(), theirs.end(),
                                   [&](const LaneState& other) { return other.peer == rank.rank; });
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
  state.events.resize(rank.code->syncs.size());
  state.identity = rank.memory.add(1);
  state.ring_places.assign(rank.code->messages.size() * rank.code->n_slots, {UINT32_MAX, 0});
  state.runs.resize(rank.clocks.size());
  state.words.resize(rank.clocks.size());
  state.outstanding = rank.code->messages.size() * problem_.n_slices;
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
  const bool in_place = options_.in_place && collective != Collective::AllToAll &&
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
      const uint32_t blocks = message.region.run + message.region.blocks;
      state.staging.push_back(rank.memory.add(blocks * cells_.size(rank.rank, message.region)));
    }
  }
  // A run is one place.
  std::map<uint32_t, uint32_t> cells;  // by its first block
  const auto look = [&](const Operand& operand) {
    if (operand.memory != lower::Memory::Scratch) return;
    const Region& region = operand.region;
    uint32_t& n = cells[region.block - region.run];
    n = std::max(n, (region.run + region.blocks) * cells_.size(rank.rank, region));
  };
  for (const Instruction& one : code.list) for_each_operand(one, look);
  for (const auto& [first, n] : cells) {
    for (uint32_t slot = 0; slot < code.n_slots; ++slot)
      state.scratch[first * size_t{code.n_slots} + slot] = rank.memory.add(n);
  }
}

}  // namespace hetccl::verify
