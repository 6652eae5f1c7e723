// All-to-all with one message from each cluster to each rank of another: the ranks of a cluster
// give their blocks for a destination to one *gatherer* among them, which sends them on together.
// The bytes across clusters are those of `direct`, in fewer messages: 2 x 16 between two clusters
// of 16 ranks instead of 2 x 256. Every block that crosses is copied twice more: to the gatherer,
// and from the arrived message to the output.
#include "plan/planners.h"

namespace hetccl::plan {
namespace {

constexpr uint16_t kGathering = 0, kSending = 1;  // stages

/// The gatherer of cluster `c` for `to`, a rank of another cluster. Gatherers take turns over all
/// such ranks, cluster by cluster, so that each has its share.
int gatherer_of(const Builder& b, int c, int to) {
  auto turn = static_cast<size_t>(b.local_rank(to));
  for (int before = 0; before < b.cluster_of(to); ++before) {
    if (before != c) turn += b.cluster(before).ranks.size();
  }
  const std::vector<int>& ranks = b.cluster(c).ranks;
  return ranks[turn % ranks.size()];
}

/// The blocks gathered in this rank's cluster.
struct Gathering {
  /// By local rank: the destinations whose blocks it collects, ascending. These are itself, and the
  /// ranks of other clusters that it is the gatherer for.
  std::vector<std::vector<int>> destinations;
  /// By destination: the scratch run in which this rank collects the blocks to send there.
  std::vector<Region> runs;
};

Gathering assign_gatherers(Builder& b) {
  const auto n = static_cast<uint32_t>(b.mine().ranks.size());
  Gathering all{std::vector<std::vector<int>>(n),
                std::vector<Region>(static_cast<size_t>(b.n_ranks()))};
  for (int to = 0; to < b.n_ranks(); ++to) {
    const auto block = static_cast<uint32_t>(to);
    const bool inside = b.cluster_of(to) == b.cluster();
    const int collector = inside ? to : gatherer_of(b, b.cluster(), to);
    all.destinations[static_cast<size_t>(b.local_rank(collector))].push_back(to);
    if (inside || collector != b.rank()) continue;
    all.runs[block] = b.alone() ? Region{Buffer::Input, block} : b.scratch_run(n, block);
  }
  return all;
}

/// Sends this rank's blocks to their gatherers and receives the blocks that it gathers. For each
/// pair, both ends list their messages in the order of the destinations. Each rank begins with its
/// neighbours, so that no two send to the same rank first.
Deps gather_blocks(Builder& b, const Gathering& all) {
  const auto self = static_cast<uint32_t>(b.local_rank(b.rank()));
  const auto n = static_cast<uint32_t>(all.destinations.size());
  Step exchange{.kind = StepKind::CclExchange, .stage = kGathering};
  for (uint32_t distance = 0; distance < n; ++distance) {
    const uint32_t collector = (self + distance) % n, from = (self + n - distance) % n;
    for (const int to : all.destinations[collector]) {
      exchange.transfers.push_back(
          {static_cast<int>(collector), true, {Buffer::Input, static_cast<uint32_t>(to)}});
    }
    const Region output{Buffer::Output, static_cast<uint32_t>(b.mine().ranks[from])};
    for (const int to : all.destinations[self]) {
      const Region& run = all.runs[static_cast<size_t>(to)];
      exchange.transfers.push_back(
          {static_cast<int>(from), false, to == b.rank() ? output : block_in_run(run, from)});
    }
  }
  return {b.add(std::move(exchange))};
}

/// Receives the blocks of cluster `c` in one message and copies each to its place.
void receive_blocks(Builder& b, uint32_t message, int c, int gatherer) {
  const std::vector<int>& ranks = b.cluster(c).ranks;
  const auto output = [&](size_t i) {
    return Region{Buffer::Output, static_cast<uint32_t>(ranks[i])};
  };
  if (ranks.size() == 1) {
    b.recv(message, gatherer, kSending, output(0), {});
    return;
  }
  const Region run = b.scratch_run(static_cast<uint32_t>(ranks.size()), 0);
  const uint16_t received = b.recv(message, gatherer, kSending, run, {});
  for (uint32_t i = 0; i < ranks.size(); ++i) {
    b.add({.kind = StepKind::Copy,
           .stage = kSending,
           .deps = {received},
           .srcs = {block_in_run(run, i)},
           .dst = output(i)});
  }
}

}  // namespace

RankPlan plan_all_to_all_gathered(Builder b) {
  const auto own = static_cast<uint32_t>(b.rank());
  const Gathering all = assign_gatherers(b);
  Deps ready;
  if (b.alone()) {
    b.add({.kind = StepKind::Copy, .srcs = {{Buffer::Input, own}}, .dst = {Buffer::Output, own}});
  } else {
    ready = gather_blocks(b, all);
  }
  for (int c = 0; c < b.n_clusters(); ++c) {
    const auto blocks = static_cast<uint32_t>(b.cluster(c).ranks.size());
    for (int to = 0; to < b.n_ranks(); ++to) {
      if (b.cluster_of(to) == c) continue;
      const int gatherer = gatherer_of(b, c, to);
      const uint32_t message = b.next_gathered_message(gatherer, to, kSending, blocks);
      if (gatherer == b.rank()) {
        b.send(message, to, kSending, all.runs[static_cast<size_t>(to)], ready);
      } else if (to == b.rank()) {
        receive_blocks(b, message, c, gatherer);
      }
    }
  }
  return std::move(b).finish(2);
}

}  // namespace hetccl::plan
