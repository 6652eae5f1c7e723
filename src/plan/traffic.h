// What one call moves between clusters, counted from the plans of all ranks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace hetccl::plan {

/// What one cluster sends to another.
struct Traffic {
  int from = 0, to = 0;   ///< clusters
  uint64_t bytes = 0;     ///< payload of the whole call
  uint64_t messages = 0;  ///< per slice
};

/// `plans[r]` is rank r's; a call with `count` elements (as in Signature) in slices of
/// `slice_bytes` (at least one element). Ascending by (from, to); pairs that exchange no message
/// are left out.
[[nodiscard]] std::vector<Traffic> traffic(const topology::Topology& topology,
                                           std::span<const RankPlan> plans, uint64_t count,
                                           DataType type, uint64_t slice_bytes);

/// The traffic of one card of a host to other hosts.
struct CardLoad {
  std::string host, card;
  int64_t mbps = 0;    ///< 0: unknown
  uint64_t bytes = 0;  ///< payload of the whole call, between clusters
};

/// The same, by the cards that ranks use: a rank's messages are spread over its cards in proportion
/// to their rates. By host in the order of ranks, then in the order of the cards' names; cards that
/// nobody uses are left out, as is what a cluster's library sends.
[[nodiscard]] std::vector<CardLoad> card_loads(const topology::Topology& topology,
                                               std::span<const RankPlan> plans, uint64_t count,
                                               DataType type, uint64_t slice_bytes);

}  // namespace hetccl::plan
