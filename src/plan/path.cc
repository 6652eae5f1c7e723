#include "plan/path.h"

namespace hetccl::plan {

std::vector<Cut> cuts_by_shares(const Builder& b, std::span<const int> path,
                                std::span<const uint32_t> blocks) {
  std::vector<Cut> cuts;
  for (const int c : path) cuts.push_back(cut_line(blocks, b.cluster(c).shares));
  return cuts;
}

void pass_along(Builder& b, std::span<const int> path, std::span<const Cut> cuts, const Deps& ready,
                const SendPiece& send) {
  // Per entry of the cluster's cut, where this rank holds it.
  std::vector<Deps> arrived(cuts.front().size(), ready);
  for (size_t hop = 0; hop + 1 < path.size(); ++hop) {
    const auto stage = static_cast<uint16_t>(hop);
    const int c = path[hop], d = path[hop + 1];
    const Cut &held = cuts[hop], &next = cuts[hop + 1];
    std::vector<Deps> arriving(next.size());
    for (const Overlap& o : overlay(held, next)) {
      const int from = b.holder(c, held[o.a_index]), to = b.holder(d, next[o.b_index]);
      const uint32_t message = b.next_message(from, to, stage, o.piece);
      if (from == b.rank()) {
        send(message, to, stage, o.piece, arrived[o.a_index]);
      } else if (to == b.rank()) {
        arriving[o.b_index].push_back(
            b.recv(message, from, stage, region_of(Buffer::Output, o.piece), {}));
      }
    }
    if (d == b.cluster()) {
      Deps all;
      for (const Deps& deps : arriving) all.insert(all.end(), deps.begin(), deps.end());
      b.broadcast_inside(next, static_cast<uint16_t>(stage + 1), std::move(all));
    }
    arrived = std::move(arriving);
  }
}

}  // namespace hetccl::plan
