#include "comm/programs.h"

#include <utility>

#include "plan/call.h"

namespace hetccl::comm {

// Most calls are like the one before.
Result<Programs::Chosen> Programs::choose(const Signature& signature, uint64_t block) {
  if (last_.program != nullptr && signature == last_signature_ && !signature.uneven) return last_;
  plan::Spec spec = plan::spec_of(signature);
  const tune::Candidate candidate = chooser_.choose(spec, block, signature.type);
  spec.algorithm = candidate.algorithm;
  Chosen chosen{nullptr, candidate.choice};
  HETCCL_ASSIGN(chosen.program, find_or_make(spec));
  plan::Choice& choice = chosen.choice;
  if (config_.slice_bytes > 0) choice.slice_bytes = static_cast<uint64_t>(config_.slice_bytes);
  if (config_.depth > 0) choice.depth = static_cast<uint32_t>(config_.depth);
  last_signature_ = signature;
  last_ = chosen;
  return chosen;
}

Result<PlannedProgram*> Programs::find_or_make(const plan::Spec& spec) {
  auto& program = programs_[spec];
  if (program == nullptr) {
    HETCCL_ASSIGN(auto plan, plan::plan(rank_, spec, topology_));
    const uint64_t least = plan::least_bytes(spec, topology_, 1, DataType::Int8);
    program =
        std::make_unique<PlannedProgram>(PlannedProgram{exec::Program(std::move(plan)), least});
    ++made_;
  }
  return program.get();
}

}  // namespace hetccl::comm
