// Reduce-scatter over clusters: each cluster reduces the blocks of every other cluster's ranks and
// sends them straight to those ranks, which add up all clusters' parts. (C-1)S across clusters.
#include <map>

#include "plan/collectives.h"

namespace hetccl::plan {
namespace {

/// The vendor's reduce-scatter of the cluster's own blocks to their ranks' outputs. Returns its
/// dependencies: none where the rank's input is its cluster's part already.
Deps reduce_own_blocks(Builder& b) {
  if (b.input_is_partial()) return {};
  if (b.alone()) {
    const Region own{Buffer::Input, static_cast<uint32_t>(b.rank())};
    return {
        b.add({.kind = StepKind::Reduce, .srcs = {own}, .dst = {Buffer::Output}, .scale = true})};
  }
  Step step{.kind = StepKind::CclReduce, .scale = b.spec().scale};
  for (uint32_t block : b.line_of(b.cluster())) {
    step.shards.push_back(
        {b.local_rank(static_cast<int>(block)), {Buffer::Input, block}, {Buffer::Output}});
  }
  return {b.add(std::move(step))};
}

}  // namespace

RankPlan plan_reduce_scatter(Builder b) {
  const int self = b.cluster(), n_clusters = b.n_clusters();
  Cut leaving;  // what this cluster reduces for the others, cluster by cluster
  std::vector<size_t> start;
  for (int d = 0; d < n_clusters; ++d) {
    start.push_back(leaving.size());
    if (d == self) continue;
    const Cut cut = cut_line(b.line_of(d), b.mine().shares);
    leaving.insert(leaving.end(), cut.begin(), cut.end());
  }
  // What crosses comes first; the own blocks are reduced while it is on the wire.
  const Partial partial = b.reduce_inside(leaving);
  Deps before_reduce = reduce_own_blocks(b);

  const uint32_t own_block = static_cast<uint32_t>(b.rank());
  std::map<int, Region> parts;  // per cluster
  parts[self] = b.input_is_partial() ? Region{Buffer::Input, own_block} : Region{Buffer::Output};
  Region spare;
  for (int d = 0; d < n_clusters; ++d) {
    for (int c = 0; c < n_clusters; ++c) {
      if (c == d) continue;
      const Cut cut = cut_line(b.line_of(d), b.cluster(c).shares);
      for (size_t i = 0; i < cut.size(); ++i) {
        const uint32_t message = b.next_message();
        const int from = b.holder(c, cut[i]), to = static_cast<int>(cut[i].piece.block);
        if (from == b.rank()) {
          b.send(message, to, 0, partial.regions[start[static_cast<size_t>(d)] + i], partial.ready);
        } else if (to == b.rank()) {
          const auto [part, is_new] = parts.try_emplace(c);
          if (is_new) part->second = b.scratch({own_block});
          if (spare.buffer != Buffer::Scratch) spare = part->second;
          before_reduce.push_back(
              b.recv(message, from, 0, part_of(part->second, cut[i].piece), {}));
        }
      }
    }
  }
  std::vector<Region> srcs;
  for (const auto& [cluster, region] : parts) srcs.push_back(region);
  b.reduce(1, {Buffer::Output}, std::move(srcs), std::move(before_reduce), spare);
  return std::move(b).finish("direct", 2);
}

}  // namespace hetccl::plan
