// Lowers a call on all ranks, and shortens it to the slices that a run must include.
#include <algorithm>

#include "base/divide.h"
#include "lower/ring.h"
#include "plan/call.h"
#include "plan/message.h"
#include "verify/shape.h"
#include "verify/verify.h"

namespace hetccl::verify {
namespace {

using plan::Buffer;
using plan::RankPlan;

// Whether ranks may cut the call into different numbers of slices, because they know only their own
// blocks.
bool may_differ(const RankPlan& plan, const Options& options) {
  return !options.lengths.empty() && plan.slicing != plan::Slicing::Agreed;
}

Status lower_rank(Lowered& lowered, const RankPlan& plan, const Options& options,
                  lower::Target target) {
  Problem& problem = lowered.problem;
  const auto rank = static_cast<int>(lowered.codes.size());
  const OwnShape own(problem.spec, problem.topology, rank, options);
  target.observed = options.observed;
  for (lower::Reach& lane : target.lanes) {
    lane.ring_bytes = std::min(lane.ring_bytes, options.most_ring_bytes);
    if (lane.direct || options.reaches == nullptr) continue;
    lane.direct = lane.registered = options.reaches(rank, lane.peer);
  }
  problem.geometries.push_back(lower::geometry_of(plan, target, own.shape));
  HETCCL_ASSIGN(auto code, lower::lower(plan, target, problem.geometries.back()));
  problem.targets.push_back(std::move(target));
  lowered.codes.push_back(std::move(code));
  return {};
}

uint64_t longest_slice(const Problem& problem) {
  uint64_t longest = 0;
  for (const lower::Geometry& own : problem.geometries) {
    longest = std::max(longest, own.slice_elements);
  }
  return longest;
}

Status check_cut(const Problem& problem, const RankPlan& plan, const Options& options) {
  const uint64_t slice = longest_slice(problem);
  const lower::Geometry& first = problem.geometries[0];
  for (size_t rank = 0; rank < problem.geometries.size(); ++rank) {
    const lower::Geometry& own = problem.geometries[rank];
    const bool fits = may_differ(plan, options)
                          ? own.n_slices == 1 || own.slice_elements == slice
                          : own.n_slices == first.n_slices && own.slice_elements == slice;
    if (fits) continue;
    return error(ErrorCode::InternalError, "rank %zu cuts the call into %u slices, rank 0 into %u",
                 rank, own.n_slices, first.n_slices);
  }
  return {};
}

/// Leaves out slices that repeat others. Between two slices in which blocks end, `enough` slices
/// show every slot being reused while the pipeline is full.
class Shortening {
 public:
  Shortening(std::vector<uint64_t> ends, uint64_t enough)
      : ends_(std::move(ends)), enough_(enough) {
    std::sort(ends_.begin(), ends_.end());
    ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());
  }
  /// Slices that remain of the first `slices`, which must be one of the ends.
  [[nodiscard]] uint64_t slices(uint64_t slices) const {
    uint64_t before = 0, left = 0;
    for (const uint64_t end : ends_) {
      if (end > slices) break;
      left += std::min(end - before, enough_);
      before = end;
    }
    return left;
  }
  /// Length that remains of `length`; the last slice keeps its length.
  [[nodiscard]] uint64_t length(uint64_t length, uint64_t slice) const {
    const uint64_t all = divide_up(length, slice);
    return length - (all - slices(all)) * slice;
  }

 private:
  std::vector<uint64_t> ends_;
  uint64_t enough_;
};

void shorten(Lowered& lowered, const Options& options) {
  Problem& problem = lowered.problem;
  uint32_t enough = 1;
  for (const lower::Code& code : lowered.codes) {
    enough = std::max({enough, code.n_slots + 2, code.last_lag + 2});
  }
  const uint64_t slice = longest_slice(problem);
  std::vector<uint64_t> ends;
  for (const lower::Geometry& own : problem.geometries) ends.push_back(own.n_slices);
  for (const uint64_t length : options.lengths) {
    ends.push_back(divide_up(length, slice));
  }
  const Shortening shortening(std::move(ends), enough);
  for (const lower::Geometry& own : problem.geometries) {
    problem.n_slices.push_back(static_cast<uint32_t>(shortening.slices(own.n_slices)));
  }
  if (options.count > 0) problem.length = shortening.length(options.count, slice);
  for (const uint64_t length : options.lengths) {
    problem.lengths.push_back(shortening.length(length, slice));
  }
}

/// `target_of(rank)` returns the target of that rank's plan.
template <typename TargetOf>
Result<Lowered> lower_problem(Problem problem, const std::vector<RankPlan>& plans,
                              const Options& options, const TargetOf& target_of) {
  HETCCL_TRY(check_form(problem.spec, problem.topology, plans));
  Lowered lowered{std::move(problem), {}};
  for (int rank = 0; const RankPlan& plan : plans) {
    HETCCL_TRY(lower_rank(lowered, plan, options, target_of(rank++)));
  }
  HETCCL_TRY(check_cut(lowered.problem, plans[0], options));
  shorten(lowered, options);
  return lowered;
}

// A topology does not describe transports that reach device memory: lanes are direct if hosts reach
// the memory of the rank's device.
lower::RankTraits traits_of(const topology::Topology& topology, int rank) {
  const topology::RankInfo& info = topology.infos()[static_cast<size_t>(rank)];
  return {topology.local_rank(rank), info.host_access};
}

// The smallest ring of one lane that gives the same geometry.
size_t fewest_bytes(const RankPlan& plan, lower::Target target, const lower::CallShape& shape,
                    const lower::Geometry& geometry, size_t lane) {
  size_t& bytes = target.lanes[lane].ring_bytes;
  size_t low = 0, high = bytes / lower::Ring::kGrain;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    bytes = middle * lower::Ring::kGrain;
    const bool same = lower::geometry_of(plan, target, shape).lanes == geometry.lanes;
    same ? high = middle : low = middle + 1;
  }
  return low * lower::Ring::kGrain;
}

}  // namespace

OwnShape::OwnShape(const plan::Spec& spec, const topology::Topology& topology, int rank,
                   const Options& options)
    : shape(shape_of(topology, rank, options)) {
  if (options.lengths.empty()) return;
  const auto n = static_cast<uint32_t>(topology.n_ranks());
  const auto list = [&](Buffer buffer, uint32_t blocks, std::vector<uint64_t>& lengths) {
    for (uint32_t block = 0; block < blocks; ++block) {
      lengths.push_back(options.lengths[unit_of(spec, topology.n_ranks(), rank, {buffer, block})]);
      shape.count = std::max(shape.count, lengths.back());
    }
  };
  shape.count = 0;
  if (plan::sends(spec.collective, spec.root, rank)) {
    list(Buffer::Input, plan::send_blocks(spec.collective, n), inputs);
  }
  if (plan::receives(spec.collective, spec.root, rank)) {
    list(Buffer::Output, plan::recv_blocks(spec.collective, n), outputs);
  }
  offsets.resize(std::max(inputs.size(), outputs.size()));
  shape.input = {inputs, std::span(offsets).first(inputs.size())};
  shape.output = {outputs, std::span(offsets).first(outputs.size())};
}

lower::CallShape shape_of(const topology::Topology& topology, int rank, const Options& options) {
  const bool kernels = topology.infos()[static_cast<size_t>(rank)].kernels;
  return {.type = options.type,
          .count = options.count,
          .choice = {options.slice_bytes, options.depth},
          .by_host = kernels ? uint8_t{0} : lower::kAllArithmetic,
          .registered = options.registered};
}

lower::Target target_of(const topology::Topology& topology, int rank, const RankPlan& plan) {
  const lower::RankTraits traits = traits_of(topology, rank);
  std::vector<lower::Reach> lanes;
  for (const int peer : lower::peers_of(plan)) {
    const auto window = static_cast<size_t>(topology.window(rank, peer));
    lanes.push_back({peer, traits.host_memory, lower::Ring::bytes_of_window(window)});
  }
  return {traits, std::move(lanes)};
}

lower::Target target_of_message(const topology::Topology& topology, int rank, const RankPlan& plan,
                                bool by_library) {
  lower::RankTraits traits = traits_of(topology, rank);
  std::vector<lower::Reach> lanes;
  for (const int peer : lower::peers_of(plan)) {
    const auto shared = static_cast<size_t>(topology.window(rank, peer));
    const bool other_host = traits_of(topology, peer).host_memory;
    const size_t window = lower::message_window(shared, traits.host_memory, other_host);
    if (by_library) traits.local_rank = rank < peer ? 0 : 1;  // in the pair's communicator
    lanes.push_back(
        by_library ? lower::reach_for_headers(peer)
                   : lower::Reach{peer, traits.host_memory, lower::Ring::bytes_of_window(window)});
  }
  return {traits, std::move(lanes)};
}

Result<Lowered> lower_all(const plan::Spec& spec, const topology::Topology& topology,
                          const std::vector<RankPlan>& plans, const Options& options) {
  return lower_problem(
      {.spec = spec, .topology = topology, .type = options.type}, plans, options,
      [&](int rank) { return target_of(topology, rank, plans[static_cast<size_t>(rank)]); });
}

Result<Lowered> lower_message(int from, int to, const topology::Topology& topology,
                              const Options& options, bool by_library) {
  std::vector<RankPlan> plans;
  for (int rank = 0; rank < topology.n_ranks(); ++rank) {
    plans.push_back(by_library ? plan::plan_message_by_library(rank, from, to)
                               : plan::plan_message(rank, from, to, topology));
  }
  const auto target = [&](int rank) {
    return target_of_message(topology, rank, plans[static_cast<size_t>(rank)], by_library);
  };
  Options cut = options;
  if (by_library) cut.reaches = nullptr;  // only headers use the channel
  for (const lower::Reach& lane : target(from).lanes) {
    const size_t ring = std::min(lane.ring_bytes, options.most_ring_bytes);
    cut.slice_bytes = lower::message_choice({options.slice_bytes, options.depth}, ring).slice_bytes;
  }
  const plan::Spec spec{Collective::PointToPoint, from};
  return lower_problem({.spec = spec,
                        .topology = topology,
                        .type = options.type,
                        .to = to,
                        .by_library = by_library},
                       plans, cut, target);
}

void shrink_rings(Lowered& lowered, const std::vector<RankPlan>& plans, const Options& options) {
  Problem& problem = lowered.problem;
  std::vector<lower::Target> shrunk = problem.targets;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const OwnShape own(problem.spec, problem.topology, static_cast<int>(rank), options);
    for (size_t lane = 0; lane < shrunk[rank].lanes.size(); ++lane) {
      shrunk[rank].lanes[lane].ring_bytes = fewest_bytes(plans[rank], problem.targets[rank],
                                                         own.shape, problem.geometries[rank], lane);
    }
  }
  // Both ends must see the same ring: the larger of both.
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    for (size_t lane = 0; lane < shrunk[rank].lanes.size(); ++lane) {
      const auto peer = static_cast<size_t>(shrunk[rank].lanes[lane].peer);
      const size_t back = shrunk[peer].lane_of(static_cast<int>(rank));
      problem.targets[rank].lanes[lane].ring_bytes =
          std::max(shrunk[rank].lanes[lane].ring_bytes, shrunk[peer].lanes[back].ring_bytes);
    }
  }
}

}  // namespace hetccl::verify
