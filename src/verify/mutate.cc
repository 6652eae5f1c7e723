#include "verify/mutate.h"

#include <algorithm>
#include <random>

#include "verify/verify.h"

namespace hetccl::verify {
namespace {

using lower::Code;
using lower::Instruction;
using lower::Opcode;
using lower::OpcodeInfo;
using Kind = Mutant::Kind;

bool is_post(const Instruction& one) {
  return info_of(one.op).is(OpcodeInfo::kMessage);
}

// Whether swapping two neighbours of a queue changes the meaning.
bool order_matters(const Instruction& first, const Instruction& second) {
  const bool calls = info_of(first.op).is(OpcodeInfo::kCollective) &&
                     info_of(second.op).is(OpcodeInfo::kCollective);
  const bool acknowledges = first.op == Opcode::Acknowledge && second.op == Opcode::Acknowledge;
  if (calls || acknowledges || (is_post(first) && is_post(second))) return true;
  const bool waits = first.op == Opcode::Wait || first.op == Opcode::Acquire;
  const bool acts = info_of(second.op).is(OpcodeInfo::kTraced) ||
                    second.op == Opcode::Acknowledge || second.op == Opcode::Finish;
  if ((waits || first.op == Opcode::Reserve) && acts) return true;
  return info_of(first.op).is(OpcodeInfo::kTraced) && second.op == Opcode::Signal;
}

class Finder {
 public:
  Finder(const Codes& codes, int rank) : code_(codes[static_cast<size_t>(rank)]), rank_(rank) {}

  void run(std::vector<Mutant>& mutants) {
    std::vector<uint32_t> last(lower::kStreams + 3 * code_.lanes.size(), UINT32_MAX);
    for (uint32_t i = 0; i < code_.list.size(); ++i) {
      const Instruction& one = code_.list[i];
      const auto add = [&](Kind kind, uint32_t operand = 0, uint32_t next = 0) {
        mutants.push_back({kind, rank_, i, operand, next});
      };
      if (!info_of(one.op).is(OpcodeInfo::kTraced)) add(Kind::Remove);
      if (is_post(one) && one.done != lower::kNoSync) add(Kind::Forget);
      if (one.op == Opcode::Wait && !code_.syncs[one.sync].once && code_.in_body(i)) {
        add(Kind::Shift);
      }
      add_misplaced(one, add);
      uint32_t& before = last[one.queue];
      if (before != UINT32_MAX && code_.in_body(before) == code_.in_body(i) &&
          order_matters(code_.list[before], one)) {
        mutants.push_back({Kind::Swap, rank_, before, 0, i});
      }
      before = i;
    }
  }

 private:
  template <typename Add>
  void add_misplaced(const Instruction& one, Add&& add) const {
    if (code_.scratch_blocks < 2 || !one.shards.empty()) return;
    const auto in_scratch = [](const lower::Operand& operand) {
      return operand.memory == lower::Memory::Scratch;
    };
    for (uint32_t s = 0; s < one.srcs.size(); ++s) {
      if (in_scratch(one.srcs[s])) add(Kind::Misplace, s);
    }
    if (in_scratch(one.dst)) add(Kind::Misplace, static_cast<uint32_t>(one.srcs.size()));
  }

  const Code& code_;
  int rank_;
};

void remove(Code& code, uint32_t index) {
  code.list.erase(code.list.begin() + index);
  if (index < code.body) --code.body;
  if (index < code.epilogue) --code.epilogue;
}

}  // namespace

std::vector<Mutant> find_mutants(const Codes& codes) {
  std::vector<Mutant> mutants;
  for (size_t rank = 0; rank < codes.size(); ++rank) {
    Finder(codes, static_cast<int>(rank)).run(mutants);
  }
  return mutants;
}

lower::Code mutate(const lower::Code& code, const Mutant& mutant) {
  Code changed = code;
  Instruction& one = changed.list[mutant.index];
  switch (mutant.kind) {
    case Kind::Remove:
      remove(changed, mutant.index);
      break;
    case Kind::Forget:
      one.done = lower::kNoSync;
      break;
    case Kind::Swap:
      std::swap(one, changed.list[mutant.next]);
      break;
    case Kind::Shift:
      ++one.back;
      break;
    case Kind::Misplace: {
      lower::Operand& operand =
          mutant.operand < one.srcs.size() ? one.srcs[mutant.operand] : one.dst;
      operand.region.block = (operand.region.block + 1) % changed.scratch_blocks;
      break;
    }
  }
  lower::index_lanes(changed);
  return changed;
}

std::string describe(const Codes& codes, const Mutant& mutant) {
  const Code& code = codes[static_cast<size_t>(mutant.rank)];
  const char* what = mutant.kind == Kind::Remove   ? "without"
                     : mutant.kind == Kind::Forget ? "without the completion of"
                     : mutant.kind == Kind::Swap   ? "with the next before"
                     : mutant.kind == Kind::Shift  ? "one slice early:"
                                                   : "in the wrong block:";
  return format("rank %d: %s %s", mutant.rank, what, describe(code, mutant.index).c_str());
}

MutationReport try_mutants(const Problem& problem, const Codes& codes, uint64_t n, uint64_t seed) {
  std::vector<Mutant> mutants = find_mutants(codes);
  std::erase_if(mutants, [&](const Mutant& one) { return !problem.launches(one.rank); });
  std::mt19937_64 random(seed);
  MutationReport report;
  Codes changed = codes;
  for (report.made = 0; report.made < std::min<uint64_t>(n, mutants.size()); ++report.made) {
    // The first `made` entries have been tried.
    std::swap(mutants[report.made],
              mutants[report.made + random() % (mutants.size() - report.made)]);
    const Mutant& mutant = mutants[report.made];
    const auto rank = static_cast<size_t>(mutant.rank);
    changed[rank] = mutate(codes[rank], mutant);
    if (!check_code(problem, changed).ok()) {
      ++report.rejected;
    } else if (report.survivors.size() < MutationReport::kMostSurvivors) {
      report.survivors.push_back(describe(codes, mutant));
    }
    changed[rank] = codes[rank];
  }
  return report;
}

}  // namespace hetccl::verify
