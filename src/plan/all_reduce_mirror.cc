// All-reduce by mirrors, for small calls: every cluster's library reduces on all ranks of the
// cluster, and each rank gets the other clusters' sums from one rank of each. More bytes cross than
// need to, a whole buffer per rank, but the call waits for only one library call.
#include <map>
#include <utility>

#include "plan/planners.h"

namespace hetccl::plan {

RankPlan plan_all_reduce_mirror(Builder b) {
  const Partial own = b.reduce_inside_everywhere();
  std::map<int, Region> parts = {{b.cluster(), own.regions[0]}};
  Deps before = own.ready;
  const Piece all;
  const auto pass = [&](int from, int to) {
    const uint32_t message = b.next_message(from, to, 0, all);
    if (from == b.rank()) {
      const uint16_t sent = b.send(message, to, 0, own.regions[0], own.ready);
      // In place, the input is also the output.
      if (b.input_is_partial()) before.push_back(sent);
    } else if (to == b.rank()) {
      const Region box = parts[b.cluster_of(from)] = b.scratch(all);
      before.push_back(b.recv(message, from, 0, box, {}));
    }
  };
  for (int c = 0; c < b.n_clusters(); ++c) {
    const std::vector<int>& froms = b.cluster(c).ranks;
    for (int to = 0; to < b.n_ranks(); ++to) {
      if (b.cluster_of(to) == c) continue;
      pass(froms[static_cast<size_t>(b.local_rank(to)) % froms.size()], to);
    }
  }
  // In cluster order, so that all ranks get the same bits.
  std::vector<Region> srcs;
  for (const auto& [cluster, part] : parts) srcs.push_back(part);
  const Region spare = parts.at(b.cluster() == 0 ? 1 : 0);  // another's, among the first sources
  b.reduce(1, {Buffer::Output}, std::move(srcs), std::move(before), spare, b.spec().average);
  return std::move(b).finish(2);
}

}  // namespace hetccl::plan
