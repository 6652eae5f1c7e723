// Broadcast over clusters, (C-1)S across them. `chain` passes from cluster to cluster, from the
// root's: border ranks forward what they received themselves, before their own cluster has it.
// `star` goes from the root to all clusters in one hop.
#include "plan/collectives.h"
#include "plan/path.h"

namespace hetccl::plan {
namespace {

constexpr uint32_t kWholeLine[] = {0};

/// The root's cluster: the vendor's broadcast. Returns what has to be complete before this rank's
/// output is.
Deps broadcast_from_root(Builder& b) {
  const int root = b.spec().root;
  if (b.cluster_of(root) != b.cluster()) return {};
  if (b.alone()) {
    return {b.add({.kind = StepKind::Copy, .srcs = {{Buffer::Input}}, .dst = {Buffer::Output}})};
  }
  // Others than the root may have no input at all: they name their output.
  const Buffer send = b.rank() == root ? Buffer::Input : Buffer::Output;
  return {b.add({.kind = StepKind::CclBroadcast,
                 .shards = {{b.local_rank(root), {send}, {Buffer::Output}}}})};
}

}  // namespace

RankPlan plan_broadcast_chain(Builder b) {
  const std::vector<int> chain = b.chain();
  const Deps inside = broadcast_from_root(b);
  const bool is_root = b.rank() == b.spec().root;
  const Buffer source = is_root ? Buffer::Input : Buffer::Output;
  pass_along(b, chain, kWholeLine, is_root ? Deps{} : inside,
             [&](uint32_t message, int to, uint16_t stage, const Piece& piece, const Deps& ready) {
               b.send(message, to, stage, region_of(source, piece), ready);
             });
  return std::move(b).finish("chain", static_cast<int>(chain.size()));
}

RankPlan plan_broadcast_star(Builder b) {
  const int root = b.spec().root;
  for (int d = 0; d < b.n_clusters(); ++d) {
    if (d == b.cluster_of(root)) continue;
    const Cut cut = cut_line(kWholeLine, b.cluster(d).shares);
    Deps received;
    for (const Held& held : cut) {
      const uint32_t message = b.next_message();
      const int to = b.holder(d, held);
      if (b.rank() == root) b.send(message, to, 0, region_of(Buffer::Input, held.piece), {});
      if (b.rank() == to) {
        received.push_back(b.recv(message, root, 0, region_of(Buffer::Output, held.piece), {}));
      }
    }
    if (d == b.cluster()) b.broadcast_inside(cut, 1, std::move(received));
  }
  broadcast_from_root(b);
  return std::move(b).finish("star", 2);
}

}  // namespace hetccl::plan
