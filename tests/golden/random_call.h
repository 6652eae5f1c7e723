// Random calls of a topology: the call, its slices, and all ranks' plans.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "fake/sample.h"
#include "golden/random_topology.h"
#include "lower/ring.h"
#include "plan/algorithms.h"
#include "plan/call.h"
#include "plan/planner.h"
#include "verify/verify.h"

namespace hetccl::test {

inline std::vector<plan::RankPlan> plan_all(const plan::Spec& spec,
                                            const topology::Topology& topology) {
  std::vector<plan::RankPlan> plans;
  for (int rank = 0; rank < topology.n_ranks(); ++rank) {
    Result<plan::RankPlan> one = plan::plan(rank, spec, topology);
    REQUIRE_MESSAGE(one.ok(), one.status().message());
    plans.push_back(std::move(one).value());
  }
  return plans;
}

inline int random_rank(std::mt19937_64& random, const topology::Topology& topology) {
  return static_cast<int>(random() % static_cast<uint64_t>(topology.n_ranks()));
}

inline plan::Spec random_spec(std::mt19937_64& random, const topology::Topology& topology,
                              Collective collective) {
  plan::Spec spec{collective};
  if (is_rooted(spec.collective)) spec.root = random_rank(random, topology);
  const uint64_t how = random() % 4;
  // A mean of floats is scaled first, and divided in the end.
  const bool mean = how == 2 && random() % 2 == 0;
  spec.average = reduces(spec.collective) && (how == 0 || mean);
  spec.scale = reduces(spec.collective) && (how == 1 || mean);
  spec.scale_apart = spec.scale && mean && random() % 2 == 0;
  spec.uneven = plan::is_pairwise(spec.collective) && how < 2;
  const auto rows = plan::find_algorithms(spec, topology);
  if (random() % 2 == 0) spec.algorithm = rows[random() % rows.size()]->id;
  return spec;
}

inline plan::Spec random_spec(std::mt19937_64& random, const topology::Topology& topology) {
  const uint64_t value = random() % static_cast<uint64_t>(Collective::PointToPoint);
  return random_spec(random, topology, static_cast<Collective>(value));
}

inline verify::Options random_options(std::mt19937_64& random) {
  constexpr uint64_t kCounts[] = {0, 1, 7, 64, 1000, 4097, 40'000, 1'000'003};
  constexpr DataType kTypes[] = {DataType::Int8, DataType::BFloat16, DataType::Float32,
                                 DataType::Float64};
  verify::Options options;
  options.depth = static_cast<uint32_t>(random() % 9);
  options.count = kCounts[random() % std::size(kCounts)];
  options.type = kTypes[random() % std::size(kTypes)];
  options.slice_bytes = random() % 8 == 0 ? 1 << 20 : 64 * (1 + random() % 40);
  options.observed = random() % 8 == 0;
  return options;
}

/// The collectives whose blocks may be of different lengths.
inline constexpr Collective kUneven[] = {Collective::AllGather, Collective::ReduceScatter,
                                         Collective::Gather, Collective::Scatter,
                                         Collective::AllToAll};

/// Makes a call of one of those uneven: some blocks of nothing, others of a few slices or of one;
/// or all of one at most. Leaves other calls even, and those whose spec says so.
inline void draw_lengths(std::mt19937_64& random, const plan::Spec& spec,
                         const topology::Topology& topology, verify::Options& options) {
  if (std::find(std::begin(kUneven), std::end(kUneven), spec.collective) == std::end(kUneven)) {
    return;
  }
  if (plan::is_pairwise(spec.collective) && !spec.uneven) return;
  const auto n = static_cast<size_t>(topology.n_ranks());
  const uint64_t slice = options.slice_bytes / size_of(options.type);
  const uint64_t few = random() % 4 == 0 ? 1 : 4, many = few == 1 ? 1 : 30;
  const uint64_t lengths[] = {0, random() % (slice + 1), random() % (few * slice + 1),
                              random() % (many * slice + 1)};
  options.lengths.resize(spec.collective == Collective::AllToAll ? n * n : n);
  for (uint64_t& length : options.lengths) length = lengths[random() % std::size(lengths)];
}

}  // namespace hetccl::test
