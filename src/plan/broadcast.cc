// Broadcast over clusters, (C-1)S bytes across them. `chain` passes the data from cluster to
// cluster, beginning at the root's: border ranks forward the data that they received themselves,
// before their own cluster has it. `star` sends from the root to all clusters in one hop.
#include <algorithm>
#include <utility>

#include "plan/path.h"
#include "plan/planners.h"

namespace hetccl::plan {
namespace {

/// Broadcasts in the root's cluster by the vendor's library. Returns the steps that complete this
/// rank's output.
Deps broadcast_from_root(Builder& b) {
  const int root = b.spec().root;
  if (b.cluster_of(root) != b.cluster()) return {};
  if (b.alone()) {
    return {b.add({.kind = StepKind::Copy, .srcs = {{Buffer::Input}}, .dst = {Buffer::Output}})};
  }
  // Only the root must have an input; the others name their output.
  const Buffer send = b.rank() == root ? Buffer::Input : Buffer::Output;
  return {b.add({.kind = StepKind::CclBroadcast,
                 .shards = {{b.local_rank(root), {send}, {Buffer::Output}}}})};
}

/// Whether a single flow fills every cluster's links to all others.
bool are_single_flows(const topology::Topology& topology) {
  const auto& clusters = topology.clusters();
  const auto& links = topology.links();
  return std::all_of(clusters.begin(), clusters.end(),
                     [](const topology::Cluster& cluster) { return cluster.single_flow; }) &&
         std::none_of(links.begin(), links.end(),
                      [](const topology::Link& link) { return link.in_memory; });
}

/// The cut of each cluster of a chain. A NIC does not serve several flows evenly for long, and a
/// cluster in the middle can pass on a slice only when it has all of it. So if one flow fills every
/// NIC, there is only one, from the root through ranks that exchange data anyway.
std::vector<Cut> cuts_of_chain(const Builder& b, std::span<const int> chain) {
  std::vector<Cut> cuts = cuts_by_shares(b, chain, kWholeLine);
  const auto& border = b.cluster(chain.front()).border;
  const auto root = std::find(border.begin(), border.end(), b.local_rank(b.spec().root));
  if (chain.size() < 3 || root == border.end() || !are_single_flows(b.topology())) return cuts;
  auto holder = static_cast<uint32_t>(root - border.begin());
  for (size_t hop = 0; hop < chain.size(); ++hop) {
    const Cut all = std::exchange(cuts[hop], {{holder, {}}});
    if (hop + 1 == chain.size()) break;
    for (const Overlap& o : overlay(all, cuts[hop + 1])) {
      if (all[o.a_index].holder != holder) continue;
      holder = cuts[hop + 1][o.b_index].holder;
      break;
    }
  }
  return cuts;
}

}  // namespace

RankPlan plan_broadcast_chain(Builder b) {
  const std::vector<int> chain = b.chain();
  const Deps inside = broadcast_from_root(b);
  const bool is_root = b.rank() == b.spec().root;
  const Buffer source = is_root ? Buffer::Input : Buffer::Output;
  forward_along(
      b, chain, cuts_of_chain(b, chain), is_root ? Deps{} : inside,
      [&](uint32_t message, int to, uint16_t stage, const Piece& piece, const Deps& ready) {
        b.send(message, to, stage, region_of(source, piece), ready);
      });
  return std::move(b).finish(static_cast<int>(chain.size()));
}

RankPlan plan_broadcast_star(Builder b) {
  const int root = b.spec().root;
  for (int d = 0; d < b.n_clusters(); ++d) {
    if (d == b.cluster_of(root)) continue;
    const Cut cut = cut_line(kWholeLine, b.cluster(d).shares);
    Deps received;
    for (const Held& held : cut) {
      const int to = b.holder(d, held);
      const uint32_t message = b.next_message(root, to, 0, held.piece);
      if (b.rank() == root) b.send(message, to, 0, region_of(Buffer::Input, held.piece), {});
      if (b.rank() == to) {
        received.push_back(b.recv(message, root, 0, region_of(Buffer::Output, held.piece), {}));
      }
    }
    if (d == b.cluster()) b.broadcast_inside(cut, 1, std::move(received));
  }
  broadcast_from_root(b);
  return std::move(b).finish(2);
}

}  // namespace hetccl::plan
