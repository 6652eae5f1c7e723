#include "plan/crossing.h"

#include <algorithm>

#include "plan/builder.h"
#include "plan/call.h"

namespace hetccl::plan {
namespace {

using topology::Topology;

/// Adds the sends of `rank`, which stands for `n_alike` ranks.
void add_sends(Crossing& crossing, const Algorithm& row, const Spec& spec, const Topology& topology,
               int rank, size_t n_alike) {
  for (const Step& step : row.build(Builder(rank, spec, topology)).steps) {
    if (step.kind != StepKind::Send) continue;
    const double blocks = length_of(step.srcs[0].begin, step.srcs[0].end);
    crossing.add(rank, step.peer, step.stage, blocks, n_alike);
  }
}

}  // namespace

double length_of(Fraction begin, Fraction end) {
  const uint64_t den = uint64_t{begin.den} * end.den;
  const uint64_t num = uint64_t{end.num} * begin.den - uint64_t{begin.num} * end.den;
  return static_cast<double>(num) / static_cast<double>(den);
}

void Crossing::add(int from, int to, uint16_t stage, double blocks, size_t n_alike) {
  const int from_cluster = topology.cluster_of(from), to_cluster = topology.cluster_of(to);
  if (from_cluster == to_cluster) return;
  const double moved = static_cast<double>(n_alike) * blocks;
  clusters[static_cast<size_t>(from_cluster)].sent += moved;
  clusters[static_cast<size_t>(to_cluster)].received += moved;
  ++ranks[static_cast<size_t>(from)].sent;
  ranks[static_cast<size_t>(to)].received += n_alike;
  stages.insert(stage);
}

Crossing count_crossing(const Algorithm& row, const Spec& spec, const Topology& topology) {
  Crossing crossing(topology);
  const auto& clusters = topology.clusters();
  const auto largest = std::max_element(
      clusters.begin(), clusters.end(),
      [](const auto& a, const auto& b) { return a.ranks.size() < b.ranks.size(); });
  const RankPlan plan = row.build(Builder(largest->ranks.front(), spec, topology, &crossing));
  crossing.slicing = plan.slicing;
  crossing.library_calls =
      static_cast<int>(std::count_if(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
        return step.kind <= StepKind::CclBarrier;
      }));
  if (!is_pairwise(spec.collective) || crossing.hops() > 0) return crossing;
  // A pairwise planner walks only its own rank's messages, so other plans are needed: all ranks of
  // a cluster except the root send alike, and one plan stands for them.
  const bool rooted = is_rooted(spec.collective);
  if (rooted) add_sends(crossing, row, spec, topology, spec.root, 1);
  for (const topology::Cluster& cluster : topology.clusters()) {
    std::vector<int> alike = cluster.ranks;
    if (rooted) std::erase(alike, spec.root);
    if (!alike.empty()) add_sends(crossing, row, spec, topology, alike.front(), alike.size());
  }
  return crossing;
}

double count_added(const Algorithm& row, const Spec& spec, const Topology& topology, int cluster) {
  double blocks = 0;
  for (const int rank : topology.clusters()[static_cast<size_t>(cluster)].ranks) {
    for (const Step& step : row.build(Builder(rank, spec, topology)).steps) {
      if (step.kind != StepKind::Reduce) continue;
      const auto others = static_cast<double>(step.srcs.size() - 1);
      blocks += others * length_of(step.dst.begin, step.dst.end);
    }
  }
  return blocks;
}

}  // namespace hetccl::plan
