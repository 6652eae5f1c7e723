#include "verify/verify.h"

#include <algorithm>

#include "lower/ring.h"
#include "plan/traffic.h"
#include "verify/machine.h"

namespace hetccl::verify {

lower::CallShape shape_of(const Options& options) {
  return {
      .type = options.type, .count = options.count, .choice = {options.slice_bytes, options.depth}};
}

lower::Target target_of(const topology::Topology& topology, int rank, const plan::RankPlan& plan) {
  const topology::RankInfo& info = topology.infos()[static_cast<size_t>(rank)];
  lower::Target target;
  target.local_rank = topology.local_rank(rank);
  target.host_memory = info.host_access;
  target.kernels = info.kernels;
  for (const int peer : lower::peers_of(plan)) {
    const auto window = static_cast<size_t>(topology.window(rank, peer));
    target.lanes.push_back({peer, info.host_access, lower::Ring::bytes_of_window(window)});
  }
  return target;
}

Result<Lowered> lower_all(const plan::Spec& spec, const topology::Topology& topology,
                          const std::vector<plan::RankPlan>& plans, const Options& options) {
  HETCCL_TRY(check_form(spec, topology, plans));
  const lower::CallShape shape = shape_of(options);
  Lowered lowered{{.spec = spec, .topology = topology, .shape = shape}, {}};
  for (int rank = 0; rank < topology.n_ranks(); ++rank) {
    const plan::RankPlan& plan = plans[static_cast<size_t>(rank)];
    auto& problem = lowered.problem;
    problem.targets.push_back(target_of(topology, rank, plan));
    problem.targets.back().observed = options.observed;
    problem.geometries.push_back(lower::geometry_of(plan, problem.targets.back(), shape));
    HETCCL_ASSIGN(auto code, lower::lower(plan, problem.targets.back(), problem.geometries.back()));
    const lower::Geometry &first = problem.geometries[0], &own = problem.geometries.back();
    if (own.n_slices != first.n_slices || own.slice_elements != first.slice_elements) {
      return error(Code::InternalError, "rank %d cuts the call into %u slices, rank 0 into %u",
                   rank, own.n_slices, first.n_slices);
    }
    lowered.codes.push_back(std::move(code));
  }
  // More slices repeat what these show: every slot is used again, while the pipeline is full.
  uint32_t enough = 1;
  for (const lower::Code& code : lowered.codes) {
    enough = std::max({enough, code.n_slots + 2, code.last_lag + 2});
  }
  lowered.problem.n_slices = std::min(lowered.problem.geometries[0].n_slices, enough);
  return lowered;
}

Status check_code(const Problem& problem, const Codes& codes) {
  for (int rank = 0; rank < problem.n_ranks(); ++rank) {
    HETCCL_TRY(check_instructions(codes[static_cast<size_t>(rank)], rank));
  }
  HETCCL_ASSIGN(const Matching matching, match(problem, codes));
  // The second call waits for the first one's buffers, or runs beside it.
  HETCCL_TRY(run_machine(problem, codes, matching, {.in_place = false, .buffer_sets = 1}));
  return run_machine(problem, codes, matching, {.in_place = true, .buffer_sets = 2});
}

Result<Verified> verify(const plan::Spec& spec, const topology::Topology& topology,
                        const std::vector<plan::RankPlan>& plans, const Options& options) {
  if (options.slice_bytes == 0 || options.slice_bytes % 64 != 0 || options.depth > 64) {
    return error(Code::InvalidArgument,
                 "slices of %llu bytes, %u deep: the size must be a multiple of 64, the depth at "
                 "most 64",
                 static_cast<unsigned long long>(options.slice_bytes), options.depth);
  }
  HETCCL_ASSIGN(const Lowered lowered, lower_all(spec, topology, plans, options));
  HETCCL_TRY(check_code(lowered.problem, lowered.codes));
  if (lowered.problem.n_slices > 1) {
    Options one = options;
    one.count = std::min<uint64_t>(options.count, 64);
    one.slice_bytes = 64 * size_of(options.type);
    HETCCL_ASSIGN(const Lowered slice, lower_all(spec, topology, plans, one));
    HETCCL_TRY(check_code(slice.problem, slice.codes));
  }
  Verified verified;
  for (const plan::RankPlan& plan : plans) verified.steps += plan.steps.size();
  for (const lower::Code& code : lowered.codes) verified.instructions += code.list.size();
  for (const plan::Traffic& pair :
       plan::traffic(topology, plans, options.count, options.type, options.slice_bytes)) {
    verified.messages += pair.messages;
    verified.cross_bytes += pair.bytes;
  }
  return verified;
}

}  // namespace hetccl::verify
