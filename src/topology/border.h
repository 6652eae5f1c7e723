// Border ranks: which ranks of a cluster carry its traffic to other clusters, and in what parts.
#pragma once

#include <vector>

#include "topology/topology.h"

namespace hetccl::topology {

/// Fills in `cards`, `border`, `shares` and `single_flow` of a cluster whose `ranks` are known.
///
/// A card counts that is not much slower than the rank's fastest. Of those a rank uses the nearest;
/// where several are equally near to several ranks of a host, they are dealt out among these ranks
/// if each gets the same rate; else each rank uses all of them. The ranks nearest to a card carry
/// its part of the cluster's traffic.
void find_border(Cluster& cluster, const std::vector<RankInfo>& infos);

/// The sum over the NICs that the border ranks use, each NIC once; 0 when one is unknown.
int64_t border_mbps(const Cluster& cluster, const std::vector<RankInfo>& infos);

/// The sum over the cards of a rank at that position of the cluster; 0: one is unknown, or none.
int64_t cards_mbps(const Cluster& cluster, int position, const std::vector<RankInfo>& infos);

/// `weights` as integers of at most 16 and gcd 1, such that the one with most to carry for its
/// weight carries the least possible. A weight too small to be worth a part gets 0. Weights > 0.
std::vector<uint32_t> small_shares(const std::vector<uint64_t>& weights);

}  // namespace hetccl::topology
