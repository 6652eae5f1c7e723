// All-gather over clusters: border ranks pass on their clusters' blocks and broadcast the arriving
// ones inside. (C-1)S bytes across clusters in both forms: `direct` takes one hop, in which a large
// cluster sends more than others; `ring` takes C-1 hops, in which every link carries the blocks of
// all clusters but one. `mirror`, for small calls: every rank sends its block to all ranks of other
// clusters itself, so that nothing waits for a library call; more bytes cross than need to. In an
// encoded gather each rank encodes its own block, and all ranks, its own too, decode the same
// encoded bytes, so that all get the same bits.
#include "plan/path.h"
#include "plan/planners.h"

namespace hetccl::plan {
namespace {

/// Gathers inside the cluster: copies every rank's input to its block of the carried output.
Deps gather_inside(Builder& b) {
  const auto own = static_cast<uint32_t>(b.rank());
  const Region input{Buffer::Input}, carried = b.carried({own});
  Deps encoded;
  if (b.encodes()) {
    encoded = {b.convert(0, carried, input, {})};
    if (b.alone()) return encoded;
  } else if (b.alone()) {
    return {b.add({.kind = StepKind::Copy, .srcs = {input}, .dst = carried})};
  }
  Step step{.kind = StepKind::CclBroadcast, .deps = std::move(encoded)};
  for (uint32_t block : b.line_of(b.cluster())) {
    const Region place = b.carried({block});
    step.shards.push_back(
        {b.local_rank(static_cast<int>(block)), b.encodes() ? place : input, place});
  }
  return {b.add(std::move(step))};
}

/// Sends `piece` of all ranks' output once it is complete. A rank's own block is sent from the
/// input, which is complete at once.
void send_block(Builder& b, uint32_t message, int to, uint16_t stage, const Piece& piece,
                Deps ready) {
  if (static_cast<int>(piece.block) == b.rank() && !b.encodes()) {
    b.send(message, to, stage, {Buffer::Input, 0, piece.begin, piece.end}, {});
  } else {
    b.send(message, to, stage, b.carried(piece), std::move(ready));
  }
}

/// Ends a plan of `stages` stages, after which all carried blocks have arrived: decodes them if
/// needed.
RankPlan finish(Builder b, int stages) {
  if (!b.encodes()) return std::move(b).finish(stages);
  b.decode_carried(static_cast<uint16_t>(stages));
  return std::move(b).finish(stages + 1);
}

}  // namespace

RankPlan plan_all_gather_direct(Builder b) {
  if (b.encodes()) b.carry_encoded();
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
        const int from = b.holder(c, sent[o.a_index]), to = b.holder(d, kept[o.b_index]);
        const uint32_t message = b.next_message(from, to, 0, o.piece);
        if (from == b.rank()) {
          send_block(b, message, to, 0, o.piece, inside);
        } else if (to == b.rank()) {
          received.push_back(b.recv(message, from, 0, b.carried(o.piece), {}));
        }
      }
    }
  }
  b.broadcast_inside(arriving, 1, std::move(received));
  return finish(std::move(b), 2);
}

RankPlan plan_all_gather_mirror(Builder b) {
  gather_inside(b);
  for (int from = 0; from < b.n_ranks(); ++from) {
    const Piece block{static_cast<uint32_t>(from)};
    for (int to = 0; to < b.n_ranks(); ++to) {
      if (b.cluster_of(from) == b.cluster_of(to)) continue;
      const uint32_t message = b.next_message(from, to, 0, block);
      if (from == b.rank()) {
        send_block(b, message, to, 0, block, {});
      } else if (to == b.rank()) {
        b.recv(message, from, 0, b.carried(block), {});
      }
    }
  }
  return finish(std::move(b), 1);
}

RankPlan plan_all_gather_ring(Builder b) {
  if (b.encodes()) b.carry_encoded();
  const Deps inside = gather_inside(b);
  const int n_clusters = b.n_clusters();
  for (int origin = 0; origin < n_clusters; ++origin) {
    std::vector<int> path;
    for (int hop = 0; hop < n_clusters; ++hop) path.push_back((origin + hop) % n_clusters);
    forward_along(b, path, cuts_by_shares(b, path, b.line_of(origin)), inside,
                  [&b](uint32_t message, int to, uint16_t stage, const Piece& piece,
                       const Deps& ready) { send_block(b, message, to, stage, piece, ready); });
  }
  return finish(std::move(b), n_clusters);
}

}  // namespace hetccl::plan
