// Border ranks: which ranks of a cluster carry its traffic to other clusters, and in what parts.
#pragma once

#include <vector>

#include "topology/topology.h"

namespace hetccl::topology {

/// Fills in `border`, `shares` and `single_flow` of a cluster whose `ranks` are known.
void find_border(Cluster& cluster, const std::vector<RankInfo>& infos);

/// The sum over the NICs that the border ranks use, each NIC once; 0 when one is unknown.
int64_t border_mbps(const Cluster& cluster, const std::vector<RankInfo>& infos);

/// Of the card that a rank uses; 0: unknown, or none.
int64_t card_mbps(const RankInfo& info);

/// `weights` as integers of at most 16 and gcd 1, such that the one with most to carry for its
/// weight carries the least possible. A weight too small to be worth a part gets 0. Weights > 0.
std::vector<uint32_t> small_shares(const std::vector<uint64_t>& weights);

}  // namespace hetccl::topology
