// All-reduce by owners, 2(C-1)S bytes across clusters in two hops: each owner adds up one part of
// the buffer and sends the sum back, so that all ranks get the same bits from one place. Between a
// cluster of hosts and a cluster of devices, the devices own the whole buffer: the bytes are the
// same, and the hosts, where sums cost the most memory bandwidth, add only their own partial.
#include <numeric>

#include "plan/c2c_reduce.h"
#include "plan/planners.h"

namespace hetccl::plan {
namespace {

/// The clusters that add up one part each, in ascending order.
std::vector<int> owners_of(const topology::Topology& topology) {
  const int devices = topology.devices_beside_hosts();
  if (devices >= 0) return {devices};
  std::vector<int> owners(topology.clusters().size());
  std::iota(owners.begin(), owners.end(), 0);
  return owners;
}

// Stage 0 reduces inside the clusters and gathers the partials at the owners, stage 1 adds there,
// stage 2 scatters the results, stage 3 broadcasts them inside.
class OwnerPlan {
 public:
  explicit OwnerPlan(Builder builder) : b_(std::move(builder)), owners_(owners_of(b_.topology())) {}

  RankPlan build() && {
    for (size_t part = 0; part < owners_.size(); ++part) {
      const Cut cut = cut_of(part, b_.cluster());
      mine_.insert(mine_.end(), cut.begin(), cut.end());
      sums_.emplace_back(b_, owners_[part], cut_of(part, owners_[part]), b_.n_clusters() - 1);
    }
    done_.resize(mine_.size());
    sent_.resize(mine_.size());
    results_.resize(mine_.size());
    partial_ = b_.reduce_inside(mine_);
    leaving_ = b_.encodes() ? encode_leaving() : partial_;
    for (size_t part = 0; part < owners_.size(); ++part) gather(part);
    for (size_t part = 0; part < owners_.size(); ++part) add(part);
    for (size_t part = 0; part < owners_.size(); ++part) scatter(part);
    Deps all;
    for (const Deps& deps : done_) all.insert(all.end(), deps.begin(), deps.end());
    b_.broadcast_inside(mine_, 3, std::move(all));
    return std::move(b_).finish(4);
  }

 private:
  struct Sent {
    Piece piece;
    uint16_t step = 0;
  };
  [[nodiscard]] Cut cut_of(size_t part, int cluster) const {
    return cut_part(static_cast<uint32_t>(part), static_cast<uint32_t>(owners_.size()),
                    b_.cluster(cluster).shares);
  }
  /// Index in `mine_` of entry `index` of `part`'s cut.
  [[nodiscard]] size_t place(size_t part, size_t index) const {
    return part * b_.mine().border.size() + index;
  }

  /// Encodes the partials that other clusters own.
  Partial encode_leaving() {
    Partial leaving{partial_.regions, {}};
    for (size_t part = 0; part < owners_.size(); ++part) {
      if (owners_[part] == b_.cluster()) continue;
      b_.encode(mine_, place(part, 0), place(part + 1, 0), partial_.ready, leaving);
    }
    return leaving;
  }

  /// Calls `visit(cluster, overlap, holder, owner)` for each overlap of a piece of `part` that
  /// another cluster holds with a piece that the owner holds.
  template <typename Visit>
  void for_each_overlap(size_t part, Visit&& visit) {
    const int owner = owners_[part];
    const Cut owned = cut_of(part, owner);
    for (int c = 0; c < b_.n_clusters(); ++c) {
      if (c == owner) continue;
      const Cut theirs = cut_of(part, c);
      for (const Overlap& o : overlay(theirs, owned)) {
        visit(c, o, b_.holder(c, theirs[o.a_index]), b_.holder(owner, owned[o.b_index]));
      }
    }
  }

  void gather(size_t part) {
    C2cReduce& sum = sums_[part];
    for_each_overlap(part, [&](int c, const Overlap& o, int from, int) {
      const int nth = c < owners_[part] ? c : c - 1;
      const int to = sum.landing(o.b_index, nth);
      const uint32_t message = b_.next_message(from, to, 0, o.piece);
      if (from == b_.rank()) {
        const size_t at = place(part, o.a_index);
        const Region src = part_of(leaving_.regions[at], o.piece);
        sent_[at].push_back({o.piece, b_.send(message, to, 0, src, leaving_.ready)});
      } else if (to == b_.rank()) {
        sum.receive(message, from, 0, o.piece, o.b_index, nth);
      }
    });
  }

  void add(size_t part) {
    const int self = b_.cluster();
    if (owners_[part] != self) return;
    const size_t first = place(part, 0), n = b_.mine().border.size();
    std::vector<C2cReduce::Own> own;
    for (size_t at = first; at < first + n; ++at) {
      results_[at].region = region_of(Buffer::Output, mine_[at].piece);
      if (b_.encodes() && b_.holds(mine_[at])) {
        results_[at].region = b_.scratch_for_message(mine_[at].piece);
      }
      own.push_back({partial_.regions[at], partial_.ready, results_[at].region});
    }
    const auto sums =
        sums_[part].add(1, static_cast<size_t>(self), std::move(own), b_.spec().average);
    for (size_t i = 0; i < n; ++i) {
      const size_t at = first + i;
      done_[at] = results_[at].ready = sums[i].ready;
      if (!results_[at].region.encoded) continue;
      // The owner's ranks decode the same encoded result as the other ranks.
      const Region output = region_of(Buffer::Output, mine_[at].piece);
      done_[at] = {b_.convert(1, output, results_[at].region, sums[i].ready)};
    }
  }

  void scatter(size_t part) {
    for_each_overlap(part, [&](int, const Overlap& o, int to, int from) {
      const uint32_t message = b_.next_message(from, to, 2, o.piece);
      const Region output = region_of(Buffer::Output, o.piece);
      if (from == b_.rank()) {
        const C2cReduce::Sum& result = results_[place(part, o.b_index)];
        b_.send(message, to, 2, part_of(result.region, o.piece), result.ready);
      } else if (to == b_.rank() && b_.encodes()) {
        const Region arrived = b_.scratch_for_message(o.piece);
        Deps before = leaving_.ready;  // in place, this overwrites its input
        before.push_back(b_.recv(message, from, 2, arrived, {}));
        done_[place(part, o.a_index)].push_back(b_.convert(2, output, arrived, std::move(before)));
      } else if (to == b_.rank()) {
        // In place, this overwrites the input: it must have been reduced, or, if it is the partial,
        // sent.
        const size_t at = place(part, o.a_index);
        Deps before = b_.input_is_partial() ? senders_of(at, o.piece) : partial_.ready;
        done_[at].push_back(b_.recv(message, from, 2, output, std::move(before)));
      }
    });
  }

  /// The sends of entry `at` that overlap `piece`.
  [[nodiscard]] Deps senders_of(size_t at, const Piece& piece) const {
    Deps senders;
    for (const Sent& sent : sent_[at]) {
      if (overlap(sent.piece, piece)) senders.push_back(sent.step);
    }
    return senders;
  }

  Builder b_;
  const std::vector<int> owners_;  // by part
  Cut mine_;                       // this cluster's cuts of all parts, one after the other
  Partial partial_, leaving_;      // partials as added here, and as sent
  // By entry of `mine_` that this rank holds: the steps that complete it, and the sends of its
  // partial.
  std::vector<Deps> done_;
  std::vector<std::vector<Sent>> sent_;
  std::vector<C2cReduce::Sum> results_;  // in the form in which they are sent
  std::vector<C2cReduce> sums_;          // by part, at its owner
};

}  // namespace

RankPlan plan_all_reduce_owner(Builder builder) {
  return OwnerPlan(std::move(builder)).build();
}

}  // namespace hetccl::plan
