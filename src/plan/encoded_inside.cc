// Encoded collectives of one cluster. Ranks exchange their encoded parts of the sum by the vendor's
// messages, and each adds up its own part with kernels. (n-1)/n of the data leaves each rank once;
// an all-reduce also gathers the sums, which takes as much again.
#include <utility>
#include <vector>

#include "plan/planners.h"

namespace hetccl::plan {
namespace {

/// The sum over all ranks, one part per local rank. Parts are given as pieces of the input.
class Sum {
 public:
  Sum(Builder& b, std::vector<Piece> parts) : b_(b), parts_(std::move(parts)) { exchange(); }

  /// Adds up this rank's part.
  uint16_t add_to(uint16_t stage, const Region& result) {
    return b_.reduce(stage, result, arrived_, {exchanged_}, spare_, b_.spec().average);
  }

 private:
  /// Returns this rank's contribution to a part, and the steps that complete it.
  std::pair<Region, Deps> contribution(const Piece& part) {
    const Region input = region_of(Buffer::Input, part);
    if (!b_.spec().scale) return {input, {}};
    const Region scaled = b_.scratch(part);
    return {scaled,
            {b_.add({.kind = StepKind::Reduce, .srcs = {input}, .dst = scaled, .scale = true})}};
  }

  void exchange() {
    const auto n = static_cast<int>(parts_.size()), self = b_.local_rank(b_.rank());
    const Piece& own = parts_[static_cast<size_t>(self)];
    arrived_.resize(parts_.size());
    Step step{.kind = StepKind::CclExchange};
    for (int distance = 1; distance < n; ++distance) {
      const int to = (self + distance) % n, from = (self + n - distance) % n;
      const Piece& part = parts_[static_cast<size_t>(to)];
      const auto [plain, ready] = contribution(part);
      const Region sent = b_.scratch(part, true);
      step.deps.push_back(b_.convert(0, sent, plain, ready));
      spare_ = arrived_[static_cast<size_t>(from)] = b_.scratch(own, true);
      step.transfers.push_back({to, true, sent});
      step.transfers.push_back({from, false, spare_});
    }
    const auto [plain, ready] = contribution(own);
    arrived_[static_cast<size_t>(self)] = plain;
    append(step.deps, ready);
    exchanged_ = b_.add(std::move(step));
  }

  Builder& b_;
  const std::vector<Piece> parts_;
  std::vector<Region> arrived_;  // contributions of all ranks to this rank's part
  Region spare_;                 // one of arrived_
  uint16_t exchanged_ = 0;
};

}  // namespace

RankPlan plan_reduce_scatter_inside(Builder b) {
  std::vector<Piece> blocks;
  for (const uint32_t block : b.line_of(b.cluster())) blocks.push_back({block});
  Sum(b, std::move(blocks)).add_to(1, {Buffer::Output});
  return std::move(b).finish(2);
}

RankPlan plan_all_reduce_inside(Builder b) {
  const auto n = static_cast<uint32_t>(b.n_ranks());
  std::vector<Piece> parts;
  for (uint32_t part = 0; part < n; ++part) parts.push_back({0, {part, n}, {part + 1, n}});
  const auto self = static_cast<uint32_t>(b.local_rank(b.rank()));
  b.carry_encoded();
  const uint16_t summed = Sum(b, parts).add_to(1, b.carried(parts[self]));
  Step gather{.kind = StepKind::CclBroadcast, .stage = 2, .deps = {summed}};
  for (uint32_t part = 0; part < n; ++part) {
    const Region place = b.carried(parts[part]);
    gather.shards.push_back({static_cast<int>(part), place, place});
  }
  b.add(std::move(gather));
  b.decode_carried(3);
  return std::move(b).finish(4);
}

}  // namespace hetccl::plan
