// Reduce-scatter over clusters: each cluster reduces the blocks of every other cluster's ranks.
// `direct` sends them straight to the clusters of those ranks, which add up all parts: one hop, in
// which a large cluster receives more than others. `ring` adds them up on the way around the
// clusters, so that every link carries the blocks of all clusters but one. (C-1)S bytes across
// clusters in both. `mirror`, for small calls: every rank sends its part of a block straight to the
// block's rank, so that one library call is enough; more bytes cross than need to.
#include <map>
#include <utility>

#include "plan/c2c_reduce.h"
#include "plan/planners.h"

namespace hetccl::plan {
namespace {

/// Reduces the cluster's own blocks to their ranks' outputs, by the vendor's library. Returns the
/// steps to depend on: none if the rank's input already is its cluster's part.
Deps reduce_own_blocks(Builder& b) {
  if (b.input_is_partial()) return {};
  if (b.alone()) {
    const Region own{Buffer::Input, static_cast<uint32_t>(b.rank())};
    return {
        b.add({.kind = StepKind::Reduce, .srcs = {own}, .dst = {Buffer::Output}, .scale = true})};
  }
  Step step{.kind = StepKind::CclReduce};
  for (uint32_t block : b.line_of(b.cluster())) {
    step.shards.push_back(
        {b.local_rank(static_cast<int>(block)), {Buffer::Input, block}, {Buffer::Output}});
  }
  return {b.reduce_input(std::move(step))};
}

/// The blocks that this cluster reduces for other clusters. They come first: the own blocks are
/// reduced while these cross.
class Leaving {
 public:
  explicit Leaving(Builder& b) {
    Cut all;
    for (int d = 0; d < b.n_clusters(); ++d) {
      start_.push_back(all.size());
      if (d == b.cluster()) continue;
      const Cut cut = cut_line(b.line_of(d), b.mine().shares);
      all.insert(all.end(), cut.begin(), cut.end());
    }
    partial_ = b.reduce_inside(all);
    if (!b.encodes()) return;
    const Deps ready = std::exchange(partial_.ready, {});
    b.encode(all, 0, all.size(), ready, partial_);
  }
  /// Piece `i` of the blocks of cluster `d`, on its holder.
  [[nodiscard]] const Region& part(int d, size_t i) const {
    return partial_.regions[start_[static_cast<size_t>(d)] + i];
  }
  [[nodiscard]] const Deps& ready() const { return partial_.ready; }

 private:
  std::vector<size_t> start_;
  Partial partial_;
};

/// Sums the blocks of cluster `d`'s ranks, each at its rank.
C2cReduce sum_of_blocks(Builder& b, int d, int n_arrivals) {
  std::vector<C2cReduce::Entry> entries;
  for (const uint32_t block : b.line_of(d)) {
    entries.push_back({static_cast<int>(block), Piece{block}});
  }
  return {b, d, std::move(entries), n_arrivals};
}

/// Index of a rank's block among those of its cluster.
size_t place_of(const Builder& b, uint32_t block) {
  return static_cast<size_t>(b.local_rank(static_cast<int>(block)));
}

/// This rank's block: its cluster's part of the sum, and the output for the result.
std::vector<C2cReduce::Own> own_block(const Builder& b, const Deps& ready) {
  const Region input{Buffer::Input, static_cast<uint32_t>(b.rank())}, output{Buffer::Output};
  std::vector<C2cReduce::Own> own(b.mine().ranks.size());
  own[place_of(b, input.block)] = {b.input_is_partial() ? input : output, ready, output};
  return own;
}

/// The sum of cluster `d`'s blocks on its way around the ring, as seen by this rank.
class RingSum {
 public:
  RingSum(Builder& b, const Leaving& leaving, int d) : b_(b), leaving_(leaving), d_(d) {}

  /// Passes the sum from the cluster after `d` around the ring to `d`, into `last`.
  void travel(C2cReduce& last) {
    const int n = b_.n_clusters();
    for (int hop = 0; hop + 1 < n; ++hop) {
      const int from = (d_ + 1 + hop) % n, to = (from + 1) % n;
      const auto stage = static_cast<uint16_t>(2 * hop);
      if (to == d_) return arrive(from, stage, last);
      pass_on(from, to, stage);
    }
  }

 private:
  [[nodiscard]] Cut cut_of(int c) const { return cut_line(b_.line_of(d_), b_.cluster(c).shares); }
  /// Entry `i`, on its holder. The first cluster on the way sends only its own part.
  [[nodiscard]] C2cReduce::Sum sum_of(size_t i) const {
    return sums_.empty() ? C2cReduce::Sum{leaving_.part(d_, i), leaving_.ready()} : sums_[i];
  }

  void pass_on(int from, int to, uint16_t stage) {
    const Cut sent = cut_of(from), kept = cut_of(to);
    C2cReduce sum(b_, to, kept);
    for (const Overlap& o : overlay(sent, kept)) {
      const int sender = b_.holder(from, sent[o.a_index]), receiver = sum.landing(o.b_index);
      const uint32_t message = b_.next_message(sender, receiver, stage, o.piece);
      if (sender == b_.rank()) {
        const C2cReduce::Sum mine = sum_of(o.a_index);
        b_.send(message, receiver, stage, part_of(mine.region, o.piece), mine.ready);
      } else if (receiver == b_.rank()) {
        sum.receive(message, sender, stage, o.piece, o.b_index);
      }
    }
    if (to != b_.cluster()) return;
    std::vector<C2cReduce::Own> own;
    for (size_t i = 0; i < kept.size(); ++i)
      own.push_back({leaving_.part(d_, i), leaving_.ready()});
    sums_ = sum.add(static_cast<uint16_t>(stage + 1), 1, std::move(own), false);
  }

  void arrive(int from, uint16_t stage, C2cReduce& last) {
    const Cut sent = cut_of(from);
    for (size_t i = 0; i < sent.size(); ++i) {
      const Piece& piece = sent[i].piece;
      const size_t at = place_of(b_, piece.block);
      const int sender = b_.holder(from, sent[i]), receiver = last.landing(at);
      const uint32_t message = b_.next_message(sender, receiver, stage, piece);
      if (sender == b_.rank()) {
        const C2cReduce::Sum mine = sum_of(i);
        b_.send(message, receiver, stage, mine.region, mine.ready);
      } else if (receiver == b_.rank()) {
        last.receive(message, sender, stage, piece, at);
      }
    }
  }

  Builder& b_;
  const Leaving& leaving_;
  const int d_;
  std::vector<C2cReduce::Sum> sums_;  // by entry of this cluster's cut, once it has added its part
};

/// This rank's parts of other clusters' blocks, multiplied if the plan says so.
class MyParts {
 public:
  explicit MyParts(Builder& b) : parts_(static_cast<size_t>(b.n_ranks())) {
    std::vector<ShardRegion> pieces;
    for (int rank = 0; rank < b.n_ranks(); ++rank) {
      if (b.cluster_of(rank) == b.cluster()) continue;
      const Piece block{static_cast<uint32_t>(rank)};
      const Region input = region_of(Buffer::Input, block);
      Region& part = parts_[block.block] = b.spec().scale ? b.scratch(block) : input;
      if (b.spec().scale) pieces.push_back({.send = input, .recv = part});
    }
    ready_ = b.scale_pieces(pieces);
  }
  [[nodiscard]] const Region& of(uint32_t block) const { return parts_[block]; }
  [[nodiscard]] const Deps& ready() const { return ready_; }

 private:
  std::vector<Region> parts_;  // by block
  Deps ready_;
};

}  // namespace

RankPlan plan_reduce_scatter_direct(Builder b) {
  const int self = b.cluster(), n_clusters = b.n_clusters();
  const Leaving leaving(b);
  const Deps own_ready = reduce_own_blocks(b);
  for (int d = 0; d < n_clusters; ++d) {
    C2cReduce sum = sum_of_blocks(b, d, n_clusters - 1);
    for (int c = 0; c < n_clusters; ++c) {
      if (c == d) continue;
      const int nth = c < d ? c : c - 1;
      const Cut cut = cut_line(b.line_of(d), b.cluster(c).shares);
      for (size_t i = 0; i < cut.size(); ++i) {
        const Piece& piece = cut[i].piece;
        const size_t at = place_of(b, piece.block);
        const int from = b.holder(c, cut[i]), to = sum.landing(at, nth);
        const uint32_t message = b.next_message(from, to, 0, piece);
        if (from == b.rank()) {
          b.send(message, to, 0, leaving.part(d, i), leaving.ready());
        } else if (to == b.rank()) {
          sum.receive(message, from, 0, piece, at, nth);
        }
      }
    }
    if (d != self) continue;
    sum.add(1, static_cast<size_t>(self), own_block(b, own_ready), b.spec().average);
  }
  return std::move(b).finish(2);
}

RankPlan plan_reduce_scatter_mirror(Builder b) {
  const MyParts parts(b);
  Deps ready = reduce_own_blocks(b);
  const Piece own{static_cast<uint32_t>(b.rank())};
  std::vector<Region> srcs = {b.input_is_partial() ? region_of(Buffer::Input, own)
                                                   : Region{Buffer::Output}};
  for (int from = 0; from < b.n_ranks(); ++from) {
    for (int to = 0; to < b.n_ranks(); ++to) {
      if (b.cluster_of(from) == b.cluster_of(to)) continue;
      const Piece block{static_cast<uint32_t>(to)};
      const uint32_t message = b.next_message(from, to, 0, block);
      if (from == b.rank()) {
        b.send(message, to, 0, parts.of(block.block), parts.ready());
      } else if (to == b.rank()) {
        srcs.push_back(b.scratch(own));
        ready.push_back(b.recv(message, from, 0, srcs.back(), {}));
      }
    }
  }
  const Region spare = srcs[1];
  b.reduce(1, {Buffer::Output}, std::move(srcs), std::move(ready), spare, b.spec().average);
  return std::move(b).finish(2);
}

RankPlan plan_reduce_scatter_ring(Builder b) {
  const Leaving leaving(b);
  const Deps own_ready = reduce_own_blocks(b);
  const int last_stage = 2 * (b.n_clusters() - 1) - 1;
  for (int d = 0; d < b.n_clusters(); ++d) {
    C2cReduce last = sum_of_blocks(b, d, 1);
    RingSum(b, leaving, d).travel(last);
    if (d != b.cluster()) continue;
    last.add(static_cast<uint16_t>(last_stage), 1, own_block(b, own_ready), b.spec().average);
  }
  return std::move(b).finish(last_stage + 1);
}

}  // namespace hetccl::plan
