// Counts the data that one call moves between clusters, from the plans of all ranks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace hetccl::plan {

/// Data that one cluster sends to another.
struct Traffic {
  int from = 0, to = 0;   ///< clusters
  uint64_t bytes = 0;     ///< payload of the whole call
  uint64_t messages = 0;  ///< per slice
};

/// Counts a call with `count` elements (as in Signature) in slices of `slice_bytes` (at least one
/// element). `plans[r]` is rank r's. Sorted by (from, to), without pairs that exchange no message.
[[nodiscard]] std::vector<Traffic> traffic(const topology::Topology& topology,
                                           std::span<const RankPlan> plans, uint64_t count,
                                           DataType type, uint64_t slice_bytes);

/// Traffic from one NIC of a host to other hosts.
struct CardLoad {
  std::string host, card;
  int64_t mbps = 0;    ///< 0: unknown
  uint64_t bytes = 0;  ///< payload of the whole call, between clusters
};

/// The same by NIC: a rank's messages are spread over its NICs in proportion to their rates. Sorted
/// by host in rank order, then by the NIC's name. Leaves out unused NICs, and data that a cluster's
/// library sends.
[[nodiscard]] std::vector<CardLoad> card_loads(const topology::Topology& topology,
                                               std::span<const RankPlan> plans, uint64_t count,
                                               DataType type, uint64_t slice_bytes);

}  // namespace hetccl::plan
