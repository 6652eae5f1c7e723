#include "plan/path.h"

namespace hetccl::plan {

std::vector<Cut> cuts_by_shares(const Builder& b, std::span<const int> path,
                                std::span<const uint32_t> blocks) {
  std::vector<Cut> cuts;
  for (const int c : path) cuts.push_back(cut_line(blocks, b.cluster(c).shares));
  return cuts;
}

namespace {

/// A part of the data that a rank carries, and the step that brings it.
struct Arrival {
  Piece piece;
  uint16_t step = 0;
};

/// The steps that bring `piece`.
Deps steps_of(const std::vector<Arrival>& arrivals, const Piece& piece) {
  Deps steps;
  for (const Arrival& arrival : arrivals) {
    if (overlap(arrival.piece, piece)) steps.push_back(arrival.step);
  }
  return steps;
}

}  // namespace

void forward_along(Builder& b, std::span<const int> path, std::span<const Cut> cuts,
                   const Deps& ready, const SendPiece& send) {
  // Arrivals, by entry of the cut of the cluster that holds the data now.
  std::vector<std::vector<Arrival>> arrived(cuts.front().size());
  for (size_t hop = 0; hop + 1 < path.size(); ++hop) {
    const auto stage = static_cast<uint16_t>(hop);
    const int c = path[hop], d = path[hop + 1];
    const Cut &held = cuts[hop], &next = cuts[hop + 1];
    std::vector<std::vector<Arrival>> arriving(next.size());
    for (const Overlap& o : overlay(held, next)) {
      const int from = b.holder(c, held[o.a_index]), to = b.holder(d, next[o.b_index]);
      const uint32_t message = b.next_message(from, to, stage, o.piece);
      if (from == b.rank()) {
        send(message, to, stage, o.piece, hop == 0 ? ready : steps_of(arrived[o.a_index], o.piece));
      } else if (to == b.rank()) {
        const uint16_t recv = b.recv(message, from, stage, b.carried(o.piece), {});
        arriving[o.b_index].push_back({o.piece, recv});
      }
    }
    if (d == b.cluster()) {
      Deps all;
      for (const auto& arrivals : arriving) {
        for (const Arrival& arrival : arrivals) all.push_back(arrival.step);
      }
      b.broadcast_inside(next, static_cast<uint16_t>(stage + 1), std::move(all));
    }
    arrived = std::move(arriving);
  }
}

}  // namespace hetccl::plan
