// All-gather over clusters: border ranks exchange their clusters' blocks and broadcast what arrives
// inside. (C-1)S across clusters.
#include "plan/collectives.h"

namespace hetccl::plan {
namespace {

/// Inside the cluster first: every rank's input to its block of everyone's output.
Deps gather_inside(Builder& b) {
  if (b.alone()) {
    const uint32_t own = static_cast<uint32_t>(b.rank());
    return {
        b.add({.kind = StepKind::Copy, .srcs = {{Buffer::Input}}, .dst = {Buffer::Output, own}})};
  }
  Step step{.kind = StepKind::CclBroadcast};
  for (uint32_t block : b.line_of(b.cluster())) {
    step.shards.push_back(
        {b.local_rank(static_cast<int>(block)), {Buffer::Input}, {Buffer::Output, block}});
  }
  return {b.add(std::move(step))};
}

}  // namespace

RankPlan plan_all_gather(Builder b) {
  const Deps inside = gather_inside(b);
  const int self = b.cluster(), n_clusters = b.n_clusters();
  Cut arriving;
  Deps received;
  for (int c = 0; c < n_clusters; ++c) {
    const std::vector<uint32_t> line = b.line_of(c);
    const Cut sent = cut_line(line, b.cluster(c).shares);
    for (int d = 0; d < n_clusters; ++d) {
      if (c == d) continue;
      const Cut kept = cut_line(line, b.cluster(d).shares);
      if (d == self) arriving.insert(arriving.end(), kept.begin(), kept.end());
      for (const Overlap& o : overlay(sent, kept)) {
        const uint32_t message = b.next_message();
        const int from = b.holder(c, sent[o.a_index]), to = b.holder(d, kept[o.b_index]);
        const Region output = region_of(Buffer::Output, o.piece);
        if (from == b.rank() && static_cast<int>(o.piece.block) == from) {
          // Its own block: from the input, which is there at once.
          b.send(message, to, 0, {Buffer::Input, 0, o.piece.begin, o.piece.end}, {});
        } else if (from == b.rank()) {
          b.send(message, to, 0, output, inside);
        } else if (to == b.rank()) {
          received.push_back(b.recv(message, from, 0, output, {}));
        }
      }
    }
  }
  b.broadcast_inside(arriving, 1, std::move(received));
  return std::move(b).finish("direct", 2);
}

}  // namespace hetccl::plan
