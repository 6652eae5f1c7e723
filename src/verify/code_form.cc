// Checks each rank's Code on its own.
#include <map>

#include "verify/problem.h"

namespace hetccl::verify {
namespace {

using lower::Instruction;
using lower::Opcode;
using lower::OpcodeInfo;

// The sync that an instruction increments; kNoSync if none. (On streams `done` is incremented by a
// Signal behind the instruction, which counts here.)
lower::SyncId sync_counted_by(const Instruction& one) {
  if (one.op == Opcode::Signal) return one.sync;
  if (one.op == Opcode::Finish) return lower::kFinished;
  return lower::is_stream(one.queue) ? lower::kNoSync : one.done;
}

bool is_in_scratch(const lower::Code& code, const lower::Operand& operand) {
  if (operand.memory != lower::Memory::Scratch) return true;
  const plan::Region& region = operand.region;
  return region.run <= region.block && region.block + region.blocks <= code.scratch_blocks;
}

const char* fault_of(const lower::Code& code, const Instruction& one) {
  const OpcodeInfo& info = info_of(one.op);
  const bool on_stream = lower::is_stream(one.queue);
  if (info.unit == OpcodeInfo::Unit::Stream && !on_stream) return "is no work of a lane";
  if (info.unit == OpcodeInfo::Unit::Wire && on_stream) return "is no work of a stream";
  bool in_scratch = true;
  for_each_operand(one, [&](const lower::Operand& operand) {
    in_scratch = in_scratch && is_in_scratch(code, operand);
  });
  if (!in_scratch) return "uses memory that it has not";
  const bool waits = one.op == Opcode::Wait;
  const lower::SyncId sync = waits ? one.sync : sync_counted_by(one);
  if (sync == lower::kNoSync) return waits ? "waits for nothing" : nullptr;
  if (sync >= code.syncs.size()) return "names a sync that does not exist";
  if (code.syncs[sync].event && !on_stream) return "has an event where only words are seen";
  return nullptr;
}

}  // namespace

Status check_instructions(const lower::Code& code, int rank) {
  std::map<lower::SyncId, uint32_t> tellers;
  for (uint32_t i = 0; i < code.list.size(); ++i) {
    const Instruction& one = code.list[i];
    const char* fault = fault_of(code, one);
    const lower::SyncId told = fault == nullptr ? sync_counted_by(one) : lower::kNoSync;
    if (told != lower::kNoSync && !tellers.try_emplace(told, i).second) {
      fault = "counts a sync that another instruction counts";
    }
    if (fault == nullptr) continue;
    return error(ErrorCode::InternalError, "%s %s", describe(code, rank, i).c_str(), fault);
  }
  if (tellers.contains(lower::kFinished)) return {};
  return error(ErrorCode::InternalError, "rank %d's Code tells no end", rank);
}

}  // namespace hetccl::verify
