// Barrier: inside the clusters, between their leaders, then inside the clusters again.
#include "plan/planners.h"

namespace hetccl::plan {

RankPlan plan_barrier(Builder b) {
  const Region nothing{Buffer::Input, 0, {0, 1}, {0, 1}};
  const auto leader = [&](int c) { return b.holder(c, Held{}); };
  const Deps inside = b.alone() ? Deps{} : Deps{b.add({.kind = StepKind::CclBarrier})};
  Deps received;
  for (int c = 0; c < b.n_clusters(); ++c) {
    for (int d = 0; d < b.n_clusters(); ++d) {
      if (c == d) continue;
      const uint32_t message = b.next_message(leader(c), leader(d), 1, {0, {0, 1}, {0, 1}});
      if (leader(c) == b.rank()) b.send(message, leader(d), 1, nothing, inside);
      if (leader(d) == b.rank()) {
        const Region dst{Buffer::Output, 0, {0, 1}, {0, 1}};
        received.push_back(b.recv(message, leader(c), 1, dst, {}));
      }
    }
  }
  if (!b.alone()) {
    b.add({.kind = StepKind::CclBarrier, .stage = 2, .deps = std::move(received)});
  }
  return std::move(b).finish(3);
}

}  // namespace hetccl::plan
