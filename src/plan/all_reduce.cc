// All-reduce over clusters. `owner` moves 2(C-1)S across clusters in two hops, `exchange` C(C-1)S,
// the same over two clusters, in one. Both keep all ranks' bits equal: `exchange` evaluates one
// expression everywhere, `owner` does its last arithmetic in one place. Over two clusters, of hosts
// and of devices, the devices may own all of it: as many bytes, and the hosts, in whose memory a
// sum costs most, add nothing but their own.
#include <map>

#include "plan/c2c_reduce.h"
#include "plan/collectives.h"

namespace hetccl::plan {
namespace {

constexpr uint32_t kWholeLine[] = {0};

/// The own part at its cluster's place: every rank adds in cluster order.
std::vector<Region> in_cluster_order(int self, const Region& own, std::map<int, Region> others) {
  others[self] = own;
  std::vector<Region> srcs;
  for (const auto& [cluster, region] : others) srcs.push_back(region);
  return srcs;
}

// Owner plan: stage 0 reduces inside and gathers the partials at the owners, stage 1 reduces there,
// stage 2 scatters the results, stage 3 broadcasts them inside.
class OwnerPlan {
 public:
  OwnerPlan(Builder builder, std::vector<int> owners)
      : b_(std::move(builder)), owners_(std::move(owners)) {}

  RankPlan build() && {
    for (size_t part = 0; part < owners_.size(); ++part) {
      const Cut cut = cut_of(part, b_.cluster());
      mine_.insert(mine_.end(), cut.begin(), cut.end());
      sums_.emplace_back(b_, owners_[part], cut_of(part, owners_[part]), b_.n_clusters() - 1);
    }
    done_.resize(mine_.size());
    sent_.resize(mine_.size());
    partial_ = b_.reduce_inside(mine_);
    for (size_t part = 0; part < owners_.size(); ++part) gather(part);
    for (size_t part = 0; part < owners_.size(); ++part) add(part);
    for (size_t part = 0; part < owners_.size(); ++part) scatter(part);
    Deps all;
    for (const Deps& deps : done_) all.insert(all.end(), deps.begin(), deps.end());
    b_.broadcast_inside(mine_, 3, std::move(all));
    return std::move(b_).finish("owner", 4);
  }

 private:
  [[nodiscard]] Cut cut_of(size_t part, int cluster) const {
    return cut_part(static_cast<uint32_t>(part), static_cast<uint32_t>(owners_.size()),
                    b_.cluster(cluster).shares);
  }
  /// Where entry `index` of `part`'s cut stands in `mine_`.
  [[nodiscard]] size_t place(size_t part, size_t index) const {
    return part * b_.mine().border.size() + index;
  }

  /// Calls `visit(cluster, overlap, holder, owner)` for what the others hold of `part`, laid over
  /// what its owner holds.
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
      const uint32_t message = b_.next_message();
      const int nth = c < owners_[part] ? c : c - 1;
      const int to = sum.landing(o.b_index, nth);
      if (from == b_.rank()) {
        const size_t at = place(part, o.a_index);
        const Region src = part_of(partial_.regions[at], o.piece);
        sent_[at].push_back(b_.send(message, to, 0, src, partial_.ready));
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
      const Region output = region_of(Buffer::Output, mine_[at].piece);
      own.push_back({partial_.regions[at], partial_.ready, output});
    }
    const auto sums =
        sums_[part].add(1, static_cast<size_t>(self), std::move(own), b_.spec().average);
    for (size_t i = 0; i < n; ++i) done_[first + i] = sums[i].ready;
  }

  void scatter(size_t part) {
    for_each_overlap(part, [&](int, const Overlap& o, int to, int from) {
      const uint32_t message = b_.next_message();
      const Region output = region_of(Buffer::Output, o.piece);
      if (from == b_.rank()) {
        b_.send(message, to, 2, output, done_[place(part, o.b_index)]);
      } else if (to == b_.rank()) {
        // In place, this overwrites what the rank's own partial was made of, or sent from.
        const size_t at = place(part, o.a_index);
        const Deps& before = b_.input_is_partial() ? sent_[at] : partial_.ready;
        done_[at].push_back(b_.recv(message, from, 2, output, before));
      }
    });
  }

  Builder b_;
  const std::vector<int> owners_;  // by part
  Cut mine_;                       // this cluster's cuts of all parts
  Partial partial_;
  // Per entry of `mine_`, where this rank holds it: what makes it complete; what reads the partial.
  std::vector<Deps> done_, sent_;
  std::vector<C2cReduce> sums_;  // by part, in its owner
};

}  // namespace

RankPlan plan_all_reduce_owner(Builder builder, std::vector<int> owners) {
  return OwnerPlan(std::move(builder), std::move(owners)).build();
}

RankPlan plan_all_reduce_exchange(Builder b) {
  std::vector<Cut> cuts;
  for (int c = 0; c < b.n_clusters(); ++c) {
    cuts.push_back(cut_line(kWholeLine, b.cluster(c).shares));
  }
  const int self = b.cluster();
  const Cut& mine = cuts[static_cast<size_t>(self)];
  const Partial partial = b.reduce_inside(mine);

  // Per entry of `mine` that this rank holds: the other clusters' partials.
  std::map<size_t, std::map<int, Region>> inbox;
  std::vector<Deps> before_reduce(mine.size(), partial.ready);
  const auto meet = [&](int own_at, int peer, size_t at, const Piece& piece, int other,
                        const uint32_t (&messages)[2]) {
    const uint16_t send =
        b.send(messages[own_at], peer, 0, part_of(partial.regions[at], piece), partial.ready);
    // A rank that sends its input overwrites it by the reduction in place. Others send from
    // scratch: their reduction waits for no send.
    if (b.input_is_partial()) before_reduce[at].push_back(send);
    const auto [box, is_new] = inbox[at].try_emplace(other);
    if (is_new) box->second = b.scratch(mine[at].piece);
    before_reduce[at].push_back(
        b.recv(messages[1 - own_at], peer, 0, part_of(box->second, piece), {}));
  };
  for (int c = 0; c < b.n_clusters(); ++c) {
    for (int d = c + 1; d < b.n_clusters(); ++d) {
      const Cut &low = cuts[static_cast<size_t>(c)], &high = cuts[static_cast<size_t>(d)];
      for (const Overlap& o : overlay(low, high)) {
        const int ends[] = {b.holder(c, low[o.a_index]), b.holder(d, high[o.b_index])};
        const uint32_t messages[] = {b.next_message(), b.next_message()};
        if (ends[0] == b.rank()) meet(0, ends[1], o.a_index, o.piece, d, messages);
        if (ends[1] == b.rank()) meet(1, ends[0], o.b_index, o.piece, c, messages);
      }
    }
  }
  Deps reduced;
  for (const auto& [at, others] : inbox) {
    const Region dst = region_of(Buffer::Output, mine[at].piece);
    reduced.push_back(b.reduce(1, dst, in_cluster_order(self, partial.regions[at], others),
                               before_reduce[at], others.begin()->second, b.spec().average));
  }
  b.broadcast_inside(mine, 2, std::move(reduced));
  return std::move(b).finish("exchange", 3);
}

}  // namespace hetccl::plan
