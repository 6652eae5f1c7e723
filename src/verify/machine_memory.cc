// Checks and models uses of memory.
#include <algorithm>

#include "verify/machine_parts.h"

namespace hetccl::verify {

using lower::Instruction;
using lower::Issue;
using lower::Operand;

Cells::Range Machine::range_of(const RankState& rank, uint32_t call, uint32_t slice,
                               const Operand& operand) const {
  if (operand.memory == lower::Memory::Identity || operand.memory == lower::Memory::Host)
    return {0, 1};
  if (!calls_[call].problem->exists(rank.rank, operand.region, slice)) return {0, 0};
  return calls_[call].cells->range(rank.rank, operand.region);
}

uint32_t Machine::place_of(const RankState& rank, uint32_t call, uint32_t slice,
                           const Operand& operand) const {
  const CallState& state = rank.calls[call];
  const uint32_t slots = state.code->n_slots;
  switch (operand.memory) {
    case lower::Memory::Input:
      return state.inputs[operand.region.block * size_t{state.n_slices} + slice];
    case lower::Memory::Output:
      return state.outputs[operand.region.block * size_t{state.n_slices} + slice];
    case lower::Memory::Scratch:
      return state
          .scratch[(operand.region.block - operand.region.run) * size_t{slots} + slice % slots];
    case lower::Memory::Identity:
      return state.identity;
    case lower::Memory::Host:
      return state.host;
    default:
      return state.staging[operand.message * size_t{slots} + slice % slots];
  }
}

// A library call or a kernel orders its own accesses only element by element.
Status Machine::check_itself(RankState& rank, uint32_t call, Issue issue) {
  const Instruction& one = rank.code(call, issue.index);
  accesses_.clear();
  bool clean = true;
  for_each_effect(
      one, calls_[call].problem->local_rank(rank.rank),
      [&](const Operand& operand, bool writes, size_t element) {
        if (operand.memory == lower::Memory::Identity || operand.memory == lower::Memory::Ring)
          return;
        const Access now{place_of(rank, call, issue.slice, operand),
                         range_of(rank, call, issue.slice, operand), writes, element};
        for (const Access& other : accesses_) {
          if (other.place != now.place || !(other.writes || writes)) continue;
          if (other.range.begin >= now.range.end || now.range.begin >= other.range.end) continue;
          const bool in_place = other.element == element && other.writes != writes &&
                                other.range.begin == now.range.begin &&
                                other.range.end == now.range.end;
          clean = clean && in_place;
        }
        accesses_.push_back(now);
      });
  return clean ? Status() : wrong(rank, call, issue.index, "overwrites what it reads");
}

// A use of one block of a run counts as a use of the whole run: in a shorter slice the blocks move,
// so a use that is ordered with the same block's uses may still meet another block's in another
// slice.
Cells::Range Machine::used_range(const RankState& rank, uint32_t call, const Operand& operand,
                                 uint32_t place, Cells::Range range) const {
  if (operand.memory != lower::Memory::Scratch) return range;
  const Cells::Range whole = rank.memory.whole(place);
  return whole.end > calls_[call].cells->size(rank.rank, operand.region) ? whole : range;
}

Status Machine::use(RankState& rank, uint32_t call, Issue issue, const Clock& clock, Use as) {
  const Instruction& one = rank.code(call, issue.index);
  const bool copies = !info_of(one.op).is(lower::OpcodeInfo::kReduces);
  Status status;
  accesses_.clear();
  for_each_effect(
      one, calls_[call].problem->local_rank(rank.rank),
      [&](const Operand& operand, bool writes, size_t) {
        if (!status.ok()) return;
        if (operand.memory == lower::Memory::Ring) {
          status = use_ring(rank, call, issue, operand, writes, clock, as);
          return;
        }
        const Cells::Range range = range_of(rank, call, issue.slice, operand);
        if (range.begin == range.end) return;
        const uint32_t place = place_of(rank, call, issue.slice, operand);
        const bool identity = operand.memory == lower::Memory::Identity;
        if (identity && !writes && rank.memory.values(place, range)[0] == Value{}) {
          note(wrong(rank, call, issue.index, "reads an identity that nobody has written"));
        }
        status = check_abort(rank, call, issue, operand, range);
        if (!status.ok()) return;
        // A copy onto itself writes nothing.
        const auto onto_itself = [&](const auto& other) {
          return other.place == place && other.range.begin == range.begin &&
                 other.range.end == range.end;
        };
        if (writes && copies && std::any_of(accesses_.begin(), accesses_.end(), onto_itself))
          return;
        if (!writes) accesses_.push_back({.place = place, .range = range});
        const Cells::Range used = used_range(rank, call, operand, place, range);
        const Use* before = writes ? rank.memory.write(place, used, clock, as)
                                   : rank.memory.read(place, used, clock, as);
        if (before == nullptr) before = use_turn(rank, operand.memory, clock, as);
        if (before != nullptr) status = conflict(rank, call, issue.index, *before);
      });
  return status;
}

// Returns null, or the unordered use of another call that had the same buffers.
const Use* Machine::use_turn(RankState& rank, lower::Memory memory, const Clock& clock, Use as) {
  const bool shared = memory == lower::Memory::Scratch || memory == lower::Memory::Staging;
  const uint32_t set = rank.calls[as.call].set;
  return shared && set != kNone ? rank.sets[set].add(clock, as) : nullptr;
}

// An abort releases all words at once. Even then no stream may touch the caller's memory before the
// caller's stream has reached the call.
Status Machine::check_abort(const RankState& rank, uint32_t call, Issue issue,
                            const Operand& operand, Cells::Range range) const {
  const Instruction& one = rank.code(call, issue.index);
  // Its kernel also updates the caller's residual.
  const bool encodes = info_of(one.op).is(lower::OpcodeInfo::kReduces) && one.dst.region.encoded;
  const bool callers =
      encodes || operand.memory == lower::Memory::Input || operand.memory == lower::Memory::Output;
  if (!callers || !lower::is_stream(one.queue) || range.begin == range.end) return {};
  const Clock& known = rank.by_events[rank.stream_thread(one.queue, call)];
  if (known.of(rank.stream_thread(kUser, call)) > 0) return {};
  return wrong(rank, call, issue.index, "may touch the caller's memory too early after an abort");
}

// Checks reads where they are loaded, and writes where they are stored.
Status Machine::use_ring(RankState& rank, uint32_t call, Issue issue, const Operand& operand,
                         bool writes, const Clock& clock, Use as) {
  if (!travels(rank, call, operand.message, issue.slice)) return {};
  const RingMessage message = ring_message(rank, call, issue.slice, operand.message);
  RingCheck& ring = ring_of(rank, call, operand.message);
  if (!(ring_place(rank, call, issue.slice, operand.message) == message)) {
    return wrong(rank, call, issue.index,
                 "has no place in the ring, or another slice took its slot");
  }
  const char* fault = writes ? ring.write(message, clock, as) : ring.read(message, clock, as);
  return fault == nullptr ? Status() : wrong(rank, call, issue.index, fault);
}

RingMessage& Machine::ring_place(RankState& rank, uint32_t call, uint32_t slice, uint16_t message) {
  const uint32_t slots = rank.calls[call].code->n_slots;
  return rank.calls[call].ring_places[message * size_t{slots} + slice % slots];
}

RingMessage Machine::ring_message(const RankState& rank, uint32_t call, uint32_t slice,
                                  uint16_t message) const {
  const auto& other_end = calls_[call].matching->other_end[static_cast<size_t>(rank.rank)];
  const uint32_t number = rank.message(call, message).sends ? message : other_end[message];
  return {tag(call, slice), static_cast<uint16_t>(number)};
}

RingCheck& Machine::ring_of(RankState& rank, uint32_t call, uint16_t message) {
  LaneState& lane = rank.lane_of(call, message);
  return rank.message(call, message).sends
             ? *lane.ring
             : *ranks_[static_cast<size_t>(lane.peer)].lanes[lane.at_peer].ring;
}

Result<std::vector<Value>> Machine::load(RankState& rank, uint32_t call, Issue issue,
                                         const Operand& operand, bool scale) {
  std::vector<Value> values;
  const Cells::Range range = range_of(rank, call, issue.slice, operand);
  if (range.begin == range.end) return values;
  if (operand.memory == lower::Memory::Ring) {
    values = ring_of(rank, call, operand.message)
                 .values(ring_message(rank, call, issue.slice, operand.message));
  } else {
    const auto cells = rank.memory.values(place_of(rank, call, issue.slice, operand), range);
    values.assign(cells.begin(), cells.end());
  }
  for (Value& value : values) {
    if (value.node == Expressions::kUndefined) {
      note(wrong(rank, call, issue.index, "reads memory that nobody has written"));
    } else if (scale) {
      value.node = expressions_.scaled(rank.rank, value.node);
    }
  }
  return values;
}

// Moves copy encoded bytes as they are; only arithmetic decodes and encodes.
void Machine::convert(RankState& rank, uint32_t call, Issue issue, const Operand& operand,
                      bool to_encoded, std::vector<Value>& values) {
  for (Value& value : values) {
    if (value.node == Expressions::kUndefined) continue;
    if (to_encoded) {
      value.node = expressions_.encoded(rank.rank, value.node);
    } else if (expressions_.is_encoded(value.node)) {
      value.node = expressions_.decoded(value.node);
    } else {
      note(wrong(rank, call, issue.index, "decodes what is not encoded"));
    }
  }
  if (to_encoded) check_encoded_once(rank, call, issue, operand);
}

// Each element of the caller's residual belongs to one encoding, so an element must be encoded only
// once.
void Machine::check_encoded_once(RankState& rank, uint32_t call, Issue issue,
                                 const Operand& operand) {
  const Cells::Range range = range_of(rank, call, issue.slice, operand);
  auto& encoded = rank.calls[call].encoded;
  for (uint32_t cell = range.begin; cell < range.end; ++cell) {
    if (encoded.insert({operand.region.of, issue.slice, cell}).second) continue;
    note(wrong(rank, call, issue.index, "encodes elements that the rank has encoded before"));
    return;
  }
}

void Machine::store(RankState& rank, uint32_t call, uint32_t slice, const Operand& operand,
                    const std::vector<Value>& values) {
  const Cells::Range range = range_of(rank, call, slice, operand);
  if (range.begin == range.end && values.empty()) return;
  if (operand.memory == lower::Memory::Ring) {
    ring_of(rank, call, operand.message).values(ring_message(rank, call, slice, operand.message)) =
        values;
    return;
  }
  const auto cells = rank.memory.values(place_of(rank, call, slice, operand), range);
  if (cells.size() != values.size()) {
    note(error(ErrorCode::InternalError, "rank %d stores a part of another length", rank.rank));
    return;
  }
  std::copy(values.begin(), values.end(), cells.begin());
}

// `operands[i]` holds the cells of source i.
std::vector<Value> Machine::reduced(RankState& rank, uint32_t call, Issue issue, uint32_t place,
                                    const std::vector<std::vector<Value>>& operands) {
  const uint32_t slice = tag(call, issue.slice);
  const bool average = rank.code(call, issue.index).average;
  const bool scaled = rank.calls[call].code->scales_averages;
  std::vector<Value> result(operands[0].size());
  std::vector<NodeId> column(operands.size()), last;
  for (size_t cell = 0; cell < result.size(); ++cell) {
    bool whole = true;
    for (size_t i = 0; i < operands.size(); ++i) {
      whole = whole && cell < operands[i].size() && operands[i][cell].slice == slice;
      column[i] = whole ? operands[i][cell].node : Expressions::kUndefined;
    }
    if (std::find(column.begin(), column.end(), Expressions::kUndefined) != column.end()) {
      note(wrong(rank, call, issue.index, "adds parts of different slices"));
      continue;
    }
    if (average && expressions_.is_scaled(column.front()) != scaled)
      note(wrong(rank, call, issue.index, "does not divide a mean by what is left to divide by"));
    // Neighbouring cells mostly hold the same expressions.
    if (column != last) {
      result[cell] = {expressions_.reduce(place, average, column), slice};
      last = column;
    } else {
      result[cell] = result[cell - 1];
    }
  }
  if (!expressions_.fault().empty()) {
    note(wrong(rank, call, issue.index, expressions_.fault().c_str()));
  }
  return result;
}

}  // namespace hetccl::verify
