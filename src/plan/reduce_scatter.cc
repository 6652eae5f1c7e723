// Reduce-scatter over clusters: each cluster reduces the blocks of every other cluster's ranks.
// `direct` sends them straight to those ranks, which add up all clusters' parts: one hop, in which
// a large cluster gets more than others. `ring` adds them up on the way around the clusters, so
// that every link carries the blocks of all clusters but one. (C-1)S across clusters either way.
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

/// What this cluster reduces for the others. It crosses, so it comes first: the own blocks are
/// reduced while it is on the wire.
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
  }
  /// Piece `i` of the blocks of cluster `d`, where this rank holds it.
  [[nodiscard]] const Region& part(int d, size_t i) const {
    return partial_.regions[start_[static_cast<size_t>(d)] + i];
  }
  [[nodiscard]] const Deps& ready() const { return partial_.ready; }

 private:
  std::vector<size_t> start_;
  Partial partial_;
};

/// The sum of cluster `d`'s blocks on its way around the ring, as this rank sees it.
class RingSum {
 public:
  RingSum(Builder& b, const Leaving& leaving, int d) : b_(b), leaving_(leaving), d_(d) {}

  /// From the cluster behind `d` around to `d`.
  void travel() {
    const int n = b_.n_clusters();
    for (int hop = 0; hop + 1 < n; ++hop) {
      const int from = (d_ + 1 + hop) % n, to = (from + 1) % n;
      const auto stage = static_cast<uint16_t>(2 * hop);
      if (to == d_) return arrive(from, stage);
      pass_on(from, to, stage);
      if (to == b_.cluster()) add_own(static_cast<uint16_t>(stage + 1));
    }
  }

  // At the end of the way: what has arrived of the rank's own block.
  Region arrived{};
  Deps ready;

 private:
  [[nodiscard]] Cut cut_of(int c) const { return cut_line(b_.line_of(d_), b_.cluster(c).shares); }
  /// What this rank holds of its cluster's sum so far: the first cluster's is its own part alone.
  [[nodiscard]] Region sum_of(size_t i) const {
    const auto found = sums_.find(i);
    return found != sums_.end() ? found->second : leaving_.part(d_, i);
  }
  [[nodiscard]] Deps ready_of(size_t i) const {
    const auto found = done_.find(i);
    return found != done_.end() ? found->second : leaving_.ready();
  }

  void pass_on(int from, int to, uint16_t stage) {
    const Cut sent = cut_of(from), kept = cut_of(to);
    for (const Overlap& o : overlay(sent, kept)) {
      const uint32_t message = b_.next_message();
      const int sender = b_.holder(from, sent[o.a_index]),
                receiver = b_.holder(to, kept[o.b_index]);
      if (sender == b_.rank()) {
        b_.send(message, receiver, stage, part_of(sum_of(o.a_index), o.piece), ready_of(o.a_index));
      } else if (receiver == b_.rank()) {
        const auto [box, is_new] = sums_.try_emplace(o.b_index);
        if (is_new) box->second = b_.scratch(kept[o.b_index].piece);
        done_[o.b_index].push_back(
            b_.recv(message, sender, stage, part_of(box->second, o.piece), {}));
      }
    }
  }

  void add_own(uint16_t stage) {
    for (auto& [i, box] : sums_) {
      Deps deps = std::move(done_[i]);
      deps.insert(deps.end(), leaving_.ready().begin(), leaving_.ready().end());
      done_[i] = {b_.add({.kind = StepKind::Reduce,
                          .stage = stage,
                          .deps = std::move(deps),
                          .srcs = {box, leaving_.part(d_, i)},
                          .dst = box})};
    }
  }

  // Straight to the ranks whose blocks they are.
  void arrive(int from, uint16_t stage) {
    const Cut sent = cut_of(from);
    for (size_t i = 0; i < sent.size(); ++i) {
      const uint32_t message = b_.next_message();
      const int sender = b_.holder(from, sent[i]), receiver = static_cast<int>(sent[i].piece.block);
      if (sender == b_.rank()) {
        b_.send(message, receiver, stage, sum_of(i), ready_of(i));
      } else if (receiver == b_.rank()) {
        if (arrived.buffer != Buffer::Scratch) arrived = b_.scratch({sent[i].piece.block});
        ready.push_back(b_.recv(message, sender, stage, part_of(arrived, sent[i].piece), {}));
      }
    }
  }

  Builder& b_;
  const Leaving& leaving_;
  const int d_;
  std::map<size_t, Region> sums_;  // per entry of this cluster's cut that this rank holds
  std::map<size_t, Deps> done_;    // likewise: what makes the sum complete
};

}  // namespace

RankPlan plan_reduce_scatter_direct(Builder b) {
  const int self = b.cluster(), n_clusters = b.n_clusters();
  const Leaving leaving(b);
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
          b.send(message, to, 0, leaving.part(d, i), leaving.ready());
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

RankPlan plan_reduce_scatter_ring(Builder b) {
  const Leaving leaving(b);
  Deps before_reduce = reduce_own_blocks(b);
  Region arrived;
  for (int d = 0; d < b.n_clusters(); ++d) {
    RingSum sum(b, leaving, d);
    sum.travel();
    if (d != b.cluster()) continue;
    arrived = sum.arrived;
    before_reduce.insert(before_reduce.end(), sum.ready.begin(), sum.ready.end());
  }
  const Region own = b.input_is_partial() ? Region{Buffer::Input, static_cast<uint32_t>(b.rank())}
                                          : Region{Buffer::Output};
  const int stages = 2 * (b.n_clusters() - 1);
  b.reduce(static_cast<uint16_t>(stages - 1), {Buffer::Output}, {arrived, own},
           std::move(before_reduce), arrived);
  return std::move(b).finish("ring", stages);
}

}  // namespace hetccl::plan
