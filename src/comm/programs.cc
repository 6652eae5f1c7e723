#include "comm/programs.h"

#include <utility>

#include "plan/algorithms.h"
#include "plan/call.h"
#include "tune/library_space.h"

namespace hetccl::comm {

// Checks the last signature first: most calls repeat it.
Result<Programs::Chosen> Programs::choose(const Signature& signature, uint64_t block,
                                          const std::optional<tune::Setting>& tuned,
                                          uint64_t round) {
  if (last_.program != nullptr && round == last_round_ && signature == last_signature_ &&
      !signature.uneven)
    return last_;
  plan::Spec spec = plan::spec_of(signature, topology_);
  Chosen chosen;
  if (tuned) {
    spec.algorithm = tuned->algorithm;
    chosen.choice = tuned->choice;
    chosen.resources = tuned->resources;
  } else {
    const tune::Candidate candidate = chooser_.choose(spec, block, signature.type);
    spec.algorithm = candidate.algorithm;
    chosen.choice = candidate.choice;
  }
  HETCCL_ASSIGN(chosen.program, find_or_make(spec));
  plan::Choice& choice = chosen.choice;
  if (config_.slice_bytes > 0) choice.slice_bytes = static_cast<uint64_t>(config_.slice_bytes);
  if (config_.depth > 0) choice.depth = static_cast<uint32_t>(config_.depth);
  last_signature_ = signature;
  last_round_ = round;
  last_ = chosen;
  return chosen;
}

Status Programs::check(const tune::Key& key, const tune::Setting& setting,
                       const Tactics& tactics) const {
  HETCCL_TRY(tune::check(setting.resources.tactic, key.collective, topology_.clusters().size() < 2,
                         tactics));
  plan::Spec spec{.collective = key.collective, .algorithm = setting.algorithm};
  if (key.root_cluster >= static_cast<int>(topology_.clusters().size()))
    return error(ErrorCode::InvalidArgument, "there is no cluster %d", key.root_cluster);
  if (key.root_cluster >= 0)
    spec.root = topology_.clusters()[static_cast<size_t>(key.root_cluster)].ranks.front();
  return plan::find_algorithm(spec, topology_).status();
}

// Returns whether links are slow enough for encodings. A single cluster has no links.
bool Programs::links_are_slow() const {
  if (config_.wire_below_mbps == 0 || topology_.clusters().size() < 2) return true;
  const double most = static_cast<double>(config_.wire_below_mbps) * 1e6 / 8;
  return chooser_.slowest_link().bandwidth < most;
}

Encoding Programs::encoding_for(const Signature& signature, uint64_t block) const {
  const Encoding& wire = signature.collective == Collective::AllGather ? wire_gather_ : wire_;
  const uint64_t bytes = block * size_of(signature.type);
  const bool encodes =
      !wire.is_none() && bytes >= static_cast<uint64_t>(config_.wire_least_bytes) &&
      links_are_slow() && plan::can_encode(signature, topology_, config_.wire_inside);
  return encodes ? wire : Encoding{};
}

double Programs::predict(const Signature& signature, uint64_t block) {
  return chooser_.choose(plan::spec_of(signature, topology_), block, signature.type).seconds;
}

tune::Space Programs::space(const Signature& signature, uint64_t block,
                            const tune::Limits& limits) {
  return chooser_.space(plan::spec_of(signature, topology_), block, signature.type, limits);
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
