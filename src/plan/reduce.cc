// Reduce to one rank, (C-1)S bytes across clusters. `chain` takes the broadcast's chain backwards,
// over the same channels, and ends at the root's cluster: border ranks add arriving data to their
// cluster's partial result and send the sum on, so every link carries the buffer once. `star` sends
// every cluster's partial result straight to the root's cluster, in one hop.
#include "plan/c2c_reduce.h"
#include "plan/planners.h"

namespace hetccl::plan {
namespace {

class ReducePlan {
 public:
  explicit ReducePlan(Builder builder)
      : b_(std::move(builder)), mine_(cut_line(kWholeLine, b_.mine().shares)) {}

  RankPlan along_chain() && {
    const std::vector<int> chain = b_.chain();
    reduce_inside();
    uint16_t stage = 0;
    for (size_t hop = chain.size() - 1; hop > 0; --hop, ++stage) {
      const int next = chain[hop - 1];
      C2cReduce sum(b_, next, cut_of(next));
      pass_on(chain[hop], next, stage, sum, 0);
      if (next == b_.cluster()) add_own(sum, static_cast<uint16_t>(stage + 1), 0, hop == 1);
    }
    if (chain.front() == b_.cluster()) gather_at_root(static_cast<uint16_t>(stage + 1));
    return std::move(b_).finish(stage + 2);
  }

  RankPlan in_one_hop() && {
    const int root = b_.cluster_of(b_.spec().root);
    reduce_inside();
    C2cReduce sum(b_, root, cut_of(root), b_.n_clusters() - 1);
    for (int c = 0; c < b_.n_clusters(); ++c) {
      if (c != root) pass_on(c, root, 0, sum, c < root ? c : c - 1);
    }
    if (root == b_.cluster()) {
      add_own(sum, 1, static_cast<size_t>(root), true);
      gather_at_root(2);
    }
    return std::move(b_).finish(3);
  }

 private:
  [[nodiscard]] bool is_root() const { return b_.rank() == b_.spec().root; }

  [[nodiscard]] Cut cut_of(int c) const { return cut_line(kWholeLine, b_.cluster(c).shares); }

  void reduce_inside() {
    const Partial partial = b_.reduce_inside(mine_);
    sums_ = partial.regions;
    ready_.assign(mine_.size(), partial.ready);
  }

  /// Sends the sums of cluster `c` to cluster `d`, as part `nth` of `d`'s sum.
  void pass_on(int c, int d, uint16_t stage, C2cReduce& sum, int nth) {
    const Cut sent = cut_of(c), kept = cut_of(d);
    for (const Overlap& o : overlay(sent, kept)) {
      const int from = b_.holder(c, sent[o.a_index]), to = sum.landing(o.b_index, nth);
      const uint32_t message = b_.next_message(from, to, stage, o.piece);
      if (from == b_.rank()) {
        b_.send(message, to, stage, part_of(sums_[o.a_index], o.piece), ready_[o.a_index]);
      } else if (to == b_.rank()) {
        sum.receive(message, from, stage, o.piece, o.b_index, nth);
      }
    }
  }

  void add_own(C2cReduce& sum, uint16_t stage, size_t own_at, bool is_last) {
    std::vector<C2cReduce::Own> own(mine_.size());
    for (size_t at = 0; at < mine_.size(); ++at) {
      own[at] = {sums_[at], ready_[at]};
      if (is_last && is_root()) own[at].result = region_of(Buffer::Output, mine_[at].piece);
    }
    auto sums = sum.add(stage, own_at, std::move(own), is_last && b_.spec().average);
    for (size_t at = 0; at < mine_.size(); ++at) {
      sums_[at] = sums[at].region;
      ready_[at] = std::move(sums[at].ready);
    }
  }

  /// Sends the sums of the root cluster's other border ranks to the root.
  void gather_at_root(uint16_t stage) {
    Step step{.kind = StepKind::CclBroadcast, .stage = stage};
    for (size_t at = 0; at < mine_.size(); ++at) {
      if (b_.holder(b_.cluster(), mine_[at]) == b_.spec().root) continue;
      const Region unused = region_of(Buffer::Input, mine_[at].piece);
      const Region output = region_of(Buffer::Output, mine_[at].piece);
      const bool mine = b_.holds(mine_[at]);
      step.shards.push_back({.root = b_.mine().border[mine_[at].holder],
                             .send = mine ? sums_[at] : unused,
                             .recv = is_root() ? output : unused,
                             .receiver = b_.local_rank(b_.spec().root)});
      if (mine) step.deps.insert(step.deps.end(), ready_[at].begin(), ready_[at].end());
    }
    if (!step.shards.empty()) b_.add(std::move(step));
  }

  Builder b_;
  const Cut mine_;            // this cluster's cut
  std::vector<Region> sums_;  // by entry of `mine_` that this rank holds
  std::vector<Deps> ready_;   // likewise: steps that complete the sum
};

}  // namespace

RankPlan plan_reduce_chain(Builder builder) {
  return ReducePlan(std::move(builder)).along_chain();
}

RankPlan plan_reduce_star(Builder builder) {
  return ReducePlan(std::move(builder)).in_one_hop();
}

}  // namespace hetccl::plan
