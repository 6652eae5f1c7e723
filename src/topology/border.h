// Border ranks: the ranks of a cluster that carry its traffic to other clusters, and their shares.
#pragma once

#include <vector>

#include "topology/topology.h"

namespace hetccl::topology {

/// Fills in `cards`, `border`, `shares` and `single_flow` of a cluster whose `ranks` are known.
///
/// A rank ignores NICs that are much slower than its fastest, and uses the nearest of the others.
/// If several NICs are equally near to several ranks of a host, they are dealt out among these
/// ranks, provided each gets the same rate; otherwise each rank uses all of them. The ranks nearest
/// to a NIC carry that NIC's part of the cluster's traffic.
void find_border(Cluster& cluster, const std::vector<RankInfo>& infos);

/// Sum of the rates of the NICs that the border ranks use, each NIC once; 0 if one is unknown.
int64_t border_mbps(const Cluster& cluster, const std::vector<RankInfo>& infos);

/// Sum of the rates of the NICs of the rank at that position in the cluster; 0 if one is unknown,
/// or if there is none.
int64_t cards_mbps(const Cluster& cluster, int position, const std::vector<RankInfo>& infos);

/// Scales `weights`, which are > 0, to integers <= 16 with gcd 1, minimising the largest
/// load-to-weight ratio. A weight too small to deserve a share becomes 0.
std::vector<uint32_t> small_shares(const std::vector<uint64_t>& weights);

}  // namespace hetccl::topology
