#include "plan/verifier.h"

#include <algorithm>
#include <functional>

#include "plan/traffic.h"
#include "plan/verify_model.h"

namespace hetccl::plan {
namespace {

/// No rank may leave a barrier before every rank has come: whom each event has heard of, as sets of
/// ranks.
Status check_barrier(const VerifyModel& model, std::span<const uint32_t> order) {
  const auto n_ranks = static_cast<size_t>(model.n_ranks());
  using Ranks = std::vector<bool>;
  const auto join = [](Ranks& into, const Ranks& from) {
    std::transform(into.begin(), into.end(), from.begin(), into.begin(), std::logical_or<>());
  };
  const auto start_of = [](StepId id) { return size_t{2} * id; };
  const size_t n_step_events = start_of(model.n_steps());
  std::vector<Ranks> heard(n_step_events + model.groups().size(), Ranks(n_ranks));
  std::vector<Ranks> left(n_ranks, Ranks(n_ranks));
  for (uint32_t event : order) {
    if (event >= heard.size()) continue;
    if (event >= n_step_events) {
      for (StepId member : model.groups()[event - n_step_events].members) {
        join(heard[event], heard[start_of(member)]);
      }
      continue;
    }
    const StepId id = event / 2;
    const int rank = model.rank_of(id);
    const Step& step = model.step(id);
    if (event % 2 == 0) {
      heard[event][static_cast<size_t>(rank)] = true;
      for (uint16_t dep : step.deps) join(heard[event], heard[start_of(model.id(rank, dep)) + 1]);
      continue;
    }
    join(heard[event], heard[event - 1]);
    if (is_ccl(step.kind)) join(heard[event], heard[n_step_events + model.match(id)]);
    if (step.kind == StepKind::Recv) join(heard[event], heard[start_of(model.match(id))]);
    join(left[static_cast<size_t>(rank)], heard[event]);
  }
  for (size_t rank = 0; rank < n_ranks && n_ranks > 1; ++rank) {
    const auto missing = std::find(left[rank].begin(), left[rank].end(), false);
    if (missing != left[rank].end()) {
      return error(Code::InternalError, "rank %zu may pass the barrier before rank %td has come",
                   rank, missing - left[rank].begin());
    }
  }
  return {};
}

}  // namespace

Result<Verified> verify(const Spec& spec, const topology::Topology& topology,
                        const std::vector<RankPlan>& plans, const VerifyOptions& options) {
  if (options.slice_bytes == 0 || options.slice_bytes % 64 != 0 || options.depth > 64) {
    return error(Code::InvalidArgument,
                 "slices of %llu bytes, %u deep: the size must be a multiple of 64, the depth at "
                 "most 64",
                 static_cast<unsigned long long>(options.slice_bytes), options.depth);
  }
  HETCCL_ASSIGN(const VerifyModel model, VerifyModel::build(spec, topology, plans));
  HETCCL_TRY(check_order(model, options.depth, options.depth + 2).status());
  HETCCL_ASSIGN(const std::vector<uint32_t> order, check_order(model, options.depth, 1));
  if (spec.collective == Collective::Barrier) {
    HETCCL_TRY(check_barrier(model, order));
  } else {
    HETCCL_TRY(check_values(model, order, /*in_place=*/false));
    HETCCL_TRY(check_values(model, order, /*in_place=*/true));
  }
  Verified verified;
  verified.steps = model.n_steps();
  for (const Traffic& pair :
       traffic(topology, plans, options.count, options.type, options.slice_bytes)) {
    verified.messages += pair.messages;
    verified.cross_bytes += pair.bytes;
  }
  return verified;
}

}  // namespace hetccl::plan
