// All-reduce by exchange, C(C-1)S bytes across clusters in one hop: every cluster sends its partial
// result to all others, and all evaluate the same expression, so that all ranks get the same bits.
#include <map>
#include <utility>

#include "plan/planners.h"

namespace hetccl::plan {
namespace {

/// Inserts this cluster's part among the others: every rank adds in cluster order.
std::vector<Region> in_cluster_order(int self, const Region& own, std::map<int, Region> others) {
  others[self] = own;
  std::vector<Region> srcs;
  for (const auto& [cluster, region] : others) srcs.push_back(region);
  return srcs;
}

}  // namespace

RankPlan plan_all_reduce_exchange(Builder b) {
  std::vector<Cut> cuts;
  for (int c = 0; c < b.n_clusters(); ++c) {
    cuts.push_back(cut_line(kWholeLine, b.cluster(c).shares));
  }
  const int self = b.cluster();
  const Cut& mine = cuts[static_cast<size_t>(self)];
  Partial partial = b.reduce_inside(mine);
  // Adds this cluster's part as the others see it, encoded, so that all clusters add the same.
  if (b.encodes()) {
    const Deps ready = std::exchange(partial.ready, {});
    b.encode(mine, 0, mine.size(), ready, partial);
  }
  const bool sends_input = b.input_is_partial() && !b.encodes();

  // By entry of `mine` that this rank holds: the partials of the other clusters.
  std::map<size_t, std::map<int, Region>> inbox;
  std::vector<Deps> before_reduce(mine.size(), partial.ready);
  const auto meet = [&](int own_at, int peer, size_t at, const Piece& piece, int other,
                        const uint32_t (&messages)[2]) {
    const uint16_t send =
        b.send(messages[own_at], peer, 0, part_of(partial.regions[at], piece), partial.ready);
    // In place, a rank that sends its input must have sent it before the reduction overwrites it.
    // Other ranks send from scratch, so their reduction waits for no send.
    if (sends_input) before_reduce[at].push_back(send);
    const auto [box, is_new] = inbox[at].try_emplace(other);
    if (is_new) box->second = b.scratch_for_message(mine[at].piece);
    before_reduce[at].push_back(
        b.recv(messages[1 - own_at], peer, 0, part_of(box->second, piece), {}));
  };
  for (int c = 0; c < b.n_clusters(); ++c) {
    for (int d = c + 1; d < b.n_clusters(); ++d) {
      const Cut &low = cuts[static_cast<size_t>(c)], &high = cuts[static_cast<size_t>(d)];
      for (const Overlap& o : overlay(low, high)) {
        const int ends[] = {b.holder(c, low[o.a_index]), b.holder(d, high[o.b_index])};
        const uint32_t messages[] = {b.next_message(ends[0], ends[1], 0, o.piece),
                                     b.next_message(ends[1], ends[0], 0, o.piece)};
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
  return std::move(b).finish(3);
}

}  // namespace hetccl::plan
