#include "verify/verify.h"

#include <algorithm>
#include <deque>

#include "plan/traffic.h"

namespace hetccl::verify {

Status check_code(const Problem& problem, const Codes& codes) {
  for (int rank = 0; rank < problem.n_ranks(); ++rank) {
    HETCCL_TRY(check_instructions(codes[static_cast<size_t>(rank)], rank));
  }
  HETCCL_ASSIGN(const Matching matching, match(problem, codes));
  // The second call waits for the first one's buffers (one set), or runs beside it (two sets).
  const Launch call{&problem, &codes, &matching};
  const Launch both[] = {call, call};
  HETCCL_TRY(run_machine(both, {.in_place = false, .buffer_sets = 1}));
  return run_machine(both, {.in_place = true, .buffer_sets = 2});
}

Status check_together(std::span<const Flight> flights, const MachineOptions& options) {
  std::deque<Matching> matchings;
  std::vector<Launch> launches;
  for (const Flight& flight : flights) {
    const auto& [problem, codes] = *flight.call;
    Launch launch{&problem, &codes, nullptr, flight.executor, flight.group};
    for (const Launch& other : launches) {
      if (other.codes == launch.codes) launch.matching = other.matching;
    }
    if (launch.matching == nullptr) {
      for (int rank = 0; rank < problem.n_ranks(); ++rank) {
        HETCCL_TRY(check_instructions(codes[static_cast<size_t>(rank)], rank));
      }
      HETCCL_ASSIGN(Matching matching, match(problem, codes));
      launch.matching = &matchings.emplace_back(std::move(matching));
    }
    launches.push_back(launch);
  }
  return run_machine(launches, options);
}

Result<Verified> verify(const plan::Spec& spec, const topology::Topology& topology,
                        const std::vector<plan::RankPlan>& plans, const Options& options) {
  if (options.slice_bytes == 0 || options.slice_bytes % 64 != 0 || options.depth > 64) {
    return error(ErrorCode::InvalidArgument,
                 "slices of %llu bytes, %u deep: the size must be a multiple of 64, the depth at "
                 "most 64",
                 static_cast<unsigned long long>(options.slice_bytes), options.depth);
  }
  HETCCL_ASSIGN(const Lowered lowered, lower_all(spec, topology, plans, options));
  HETCCL_TRY(check_code(lowered.problem, lowered.codes));
  if (lowered.problem.most_slices() > 1) {
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
