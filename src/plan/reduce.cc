// Reduce along a chain of clusters that ends at the root's: the broadcast's chain, backwards, over
// the same channels. Border ranks add what arrives to their cluster's partial result and send the
// sum on, so every link carries the buffer once. (C-1)S across clusters.
#include "plan/c2c_reduce.h"
#include "plan/collectives.h"

namespace hetccl::plan {
namespace {

constexpr uint32_t kWholeLine[] = {0};

class ReducePlan {
 public:
  explicit ReducePlan(Builder builder)
      : b_(std::move(builder)), mine_(cut_line(kWholeLine, b_.mine().shares)) {}

  RankPlan build() && {
    const std::vector<int> chain = b_.chain();
    const Partial partial = b_.reduce_inside(mine_);
    sums_ = partial.regions;
    ready_.assign(mine_.size(), partial.ready);
    uint16_t stage = 0;
    for (size_t hop = chain.size() - 1; hop > 0; --hop, ++stage) {
      pass_on(chain[hop], chain[hop - 1], stage, hop == 1);
    }
    if (chain.front() == b_.cluster()) gather_at_root(static_cast<uint16_t>(stage + 1));
    return std::move(b_).finish("chain", stage + 2);
  }

 private:
  [[nodiscard]] bool is_root() const { return b_.rank() == b_.spec().root; }

  /// The sums of cluster `c` to cluster `d`, which adds its own.
  void pass_on(int c, int d, uint16_t stage, bool is_last) {
    const Cut sent = cut_line(kWholeLine, b_.cluster(c).shares);
    const Cut kept = cut_line(kWholeLine, b_.cluster(d).shares);
    C2cReduce sum(b_, d, kept);
    for (const Overlap& o : overlay(sent, kept)) {
      const uint32_t message = b_.next_message();
      const int from = b_.holder(c, sent[o.a_index]), to = sum.landing(o.b_index);
      if (from == b_.rank()) {
        b_.send(message, to, stage, part_of(sums_[o.a_index], o.piece), ready_[o.a_index]);
      } else if (to == b_.rank()) {
        sum.receive(message, from, stage, o.piece, o.b_index);
      }
    }
    if (d == b_.cluster()) add_own(sum, static_cast<uint16_t>(stage + 1), is_last);
  }

  void add_own(C2cReduce& sum, uint16_t stage, bool is_last) {
    std::vector<C2cReduce::Own> own(mine_.size());
    for (size_t at = 0; at < mine_.size(); ++at) {
      own[at] = {sums_[at], ready_[at]};
      if (is_last && is_root()) own[at].result = region_of(Buffer::Output, mine_[at].piece);
    }
    auto sums = sum.add(stage, 0, std::move(own), is_last && b_.spec().average);
    for (size_t at = 0; at < mine_.size(); ++at) {
      sums_[at] = sums[at].region;
      ready_[at] = std::move(sums[at].ready);
    }
  }

  /// What other border ranks of the root's cluster hold, to the root alone.
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
  const Cut mine_;            // this cluster's
  std::vector<Region> sums_;  // per entry of `mine_`, where this rank holds it
  std::vector<Deps> ready_;   // likewise: what makes the sum complete
};

}  // namespace

RankPlan plan_reduce(Builder builder) {
  return ReducePlan(std::move(builder)).build();
}

}  // namespace hetccl::plan
