#include "topology/border.h"

#include <algorithm>
#include <climits>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

namespace hetccl::topology {
namespace {

constexpr uint32_t kMaxShare = 16;
constexpr int64_t kSingleFlowMbps = 10'000;
// Weights are scaled to at most this, so that the comparisons below fit into 64 bits.
constexpr uint64_t kScale = 1024;

const RankInfo& info_of(const Cluster& cluster, int position, const std::vector<RankInfo>& infos) {
  return infos[static_cast<size_t>(cluster.ranks[static_cast<size_t>(position)])];
}

/// The NIC a rank would use: nearest, then fastest, then first by name. Null when it has none.
const Nic* best_nic(const RankInfo& info) {
  const auto worse = [](const Nic& a, const Nic& b) {
    return std::tuple(a.distance, -a.mbps, std::string_view(a.name)) <
           std::tuple(b.distance, -b.mbps, std::string_view(b.name));
  };
  const auto best = std::min_element(info.nics.begin(), info.nics.end(), worse);
  return best == info.nics.end() ? nullptr : &*best;
}

using NicKey = std::pair<std::string, std::string>;  // host, name

/// How many border ranks use each NIC.
std::map<NicKey, uint64_t> users_of_nics(const Cluster& cluster,
                                         const std::vector<RankInfo>& infos) {
  std::map<NicKey, uint64_t> users;
  for (int position : cluster.border) {
    const RankInfo& info = info_of(cluster, position, infos);
    if (const Nic* nic = best_nic(info)) ++users[{info.host, nic->name}];
  }
  return users;
}

/// Each border rank's part of its NIC's bandwidth, times a common factor; empty when one is
/// unknown.
std::vector<uint64_t> bandwidths(const Cluster& cluster, const std::vector<RankInfo>& infos) {
  const auto users = users_of_nics(cluster, infos);
  std::vector<uint64_t> result;
  for (int position : cluster.border) {
    const RankInfo& info = info_of(cluster, position, infos);
    const Nic* nic = best_nic(info);
    if (nic == nullptr || nic->mbps <= 0) return {};
    // At most 65,536 ranks share a NIC: the factor keeps their parts apart.
    const uint64_t mbps = static_cast<uint64_t>(nic->mbps);
    result.push_back(std::max<uint64_t>(1, (mbps << 20U) / users.at({info.host, nic->name})));
  }
  return result;
}

/// round(weight * scale / largest), for weights of up to 2^52.
uint32_t rounded(uint64_t weight, uint64_t scale, uint64_t largest) {
  return static_cast<uint32_t>((2 * weight * scale + largest) / (2 * largest));
}

/// Whether one flow fills what all border ranks have: one core moves more than such a card.
bool is_single_flow(const Cluster& cluster, const std::vector<RankInfo>& infos) {
  const auto users = users_of_nics(cluster, infos);
  const int64_t mbps = card_mbps(info_of(cluster, cluster.border.front(), infos));
  return users.size() == 1 && users.begin()->second == cluster.border.size() && mbps > 0 &&
         mbps <= kSingleFlowMbps;
}

/// The ranks nearest to a NIC, and their shares.
void find_carriers(Cluster& cluster, const std::vector<RankInfo>& infos) {
  std::vector<int> distances;
  for (size_t p = 0; p < cluster.ranks.size(); ++p) {
    const Nic* nic = best_nic(info_of(cluster, static_cast<int>(p), infos));
    distances.push_back(nic == nullptr ? INT_MAX : nic->distance);
  }
  const int nearest = *std::min_element(distances.begin(), distances.end());
  for (size_t p = 0; p < distances.size(); ++p) {
    if (distances[p] == nearest) cluster.border.push_back(static_cast<int>(p));
  }
  const std::vector<uint64_t> weights = bandwidths(cluster, infos);
  if (weights.empty()) {
    cluster.shares.assign(cluster.border.size(), 1);
    return;
  }
  const std::vector<uint32_t> shares = small_shares(weights);
  std::vector<int> carriers;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] == 0) continue;
    carriers.push_back(cluster.border[i]);
    cluster.shares.push_back(shares[i]);
  }
  cluster.border = std::move(carriers);
}

}  // namespace

int64_t card_mbps(const RankInfo& info) {
  const Nic* nic = best_nic(info);
  return nic == nullptr ? 0 : nic->mbps;
}

std::vector<uint32_t> small_shares(const std::vector<uint64_t>& weights) {
  const uint64_t largest = *std::max_element(weights.begin(), weights.end());
  std::vector<uint64_t> scaled;
  for (uint64_t w : weights) scaled.push_back(std::max(1U, rounded(w, kScale, largest)));

  // The time a cut takes is the largest of share / weight over the sum of shares: a fraction.
  std::vector<uint32_t> best;
  uint64_t best_num = 0, best_den = 0;
  for (uint32_t scale = 1; scale <= kMaxShare; ++scale) {
    std::vector<uint32_t> shares;
    for (uint64_t w : scaled) shares.push_back(rounded(w, scale, kScale));
    const uint64_t sum = std::accumulate(shares.begin(), shares.end(), uint64_t{0});
    uint64_t num = 0, den = 1;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i] * den > num * scaled[i]) num = shares[i], den = scaled[i];
    }
    den *= sum;
    if (best.empty() || num * best_den < best_num * den) {
      best = std::move(shares), best_num = num, best_den = den;
    }
  }
  uint32_t divisor = 0;
  for (uint32_t share : best) divisor = std::gcd(divisor, share);
  for (uint32_t& share : best) share /= divisor;
  return best;
}

void find_border(Cluster& cluster, const std::vector<RankInfo>& infos) {
  find_carriers(cluster, infos);
  cluster.single_flow = is_single_flow(cluster, infos);
}

int64_t border_mbps(const Cluster& cluster, const std::vector<RankInfo>& infos) {
  std::map<NicKey, int64_t> nics;
  for (int position : cluster.border) {
    const RankInfo& info = info_of(cluster, position, infos);
    const Nic* nic = best_nic(info);
    if (nic == nullptr || nic->mbps <= 0) return 0;
    nics[{info.host, nic->name}] = nic->mbps;
  }
  int64_t sum = 0;
  for (const auto& [key, mbps] : nics) sum += mbps;
  return sum;
}

}  // namespace hetccl::topology
