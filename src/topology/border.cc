#include "topology/border.h"

#include <algorithm>
#include <climits>
#include <map>
#include <numeric>
#include <set>
#include <string>
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

// A NIC with less than a quarter of the fastest one's rate would delay more than it carries.
constexpr int64_t kWorthwhile = 4;

/// The useful NICs of a rank, each once, by falling rate, then by name. NICs of unknown rate count
/// only if all rates are unknown.
std::vector<int> cards_of(const RankInfo& info) {
  const auto nic = [&](int place) -> const Nic& { return info.nics[static_cast<size_t>(place)]; };
  std::vector<int> places(info.nics.size());
  std::iota(places.begin(), places.end(), 0);
  const auto better = [&](int a, int b) {
    return std::tuple(-nic(a).mbps, std::string_view(nic(a).name), nic(a).distance) <
           std::tuple(-nic(b).mbps, std::string_view(nic(b).name), nic(b).distance);
  };
  std::stable_sort(places.begin(), places.end(), better);
  std::set<std::string_view> seen;
  std::erase_if(places, [&](int place) { return !seen.insert(nic(place).name).second; });
  if (places.empty()) return places;
  const int64_t fastest = nic(places.front()).mbps;
  std::erase_if(places, [&](int place) { return nic(place).mbps * kWorthwhile < fastest; });
  return places;
}

/// The useful NICs that are nearest to the rank.
std::vector<int> nearest_cards(const RankInfo& info) {
  std::vector<int> places = cards_of(info);
  int least = INT_MAX;
  for (int place : places) least = std::min(least, info.nics[static_cast<size_t>(place)].distance);
  std::erase_if(places,
                [&](int place) { return info.nics[static_cast<size_t>(place)].distance > least; });
  return places;
}

std::vector<std::string> names_of(const RankInfo& info, const std::vector<int>& places) {
  std::vector<std::string> names;
  for (int place : places) names.push_back(info.nics[static_cast<size_t>(place)].name);
  return names;
}

/// Deals NICs out to `ranks` ranks, with equally many NICs per rank or ranks per NIC. Returns
/// indices into `mbps`, by rank; nothing if that is impossible or would give ranks unequal rates.
std::vector<std::vector<size_t>> deal(const std::vector<int64_t>& mbps, size_t ranks) {
  const size_t cards = mbps.size();
  if (ranks % cards != 0 && cards % ranks != 0) return {};
  std::vector<std::vector<size_t>> dealt(ranks);
  std::set<int64_t> rates;
  for (size_t rank = 0; rank < ranks; ++rank) {
    int64_t rate = 0;
    for (size_t card = rank % cards; card < cards; card += ranks) {
      dealt[rank].push_back(card);
      rate += mbps[card];
    }
    rates.insert(rate);
  }
  return rates.size() == 1 ? dealt : std::vector<std::vector<size_t>>{};
}

/// Gives each rank its nearest NICs. NICs that are nearest to several ranks of a host are dealt out
/// among them, so that each NIC has few flows. If that would give ranks unequal rates, each uses
/// all of them: an all-to-all would wait for the slowest rank.
void find_cards(Cluster& cluster, const std::vector<RankInfo>& infos) {
  using Group = std::pair<std::string, std::vector<std::string>>;  // host, names
  std::map<Group, std::vector<size_t>> groups;                     // positions in the cluster
  for (int rank : cluster.ranks) {
    const RankInfo& info = infos[static_cast<size_t>(rank)];
    cluster.cards.push_back(nearest_cards(info));
    groups[{info.host, names_of(info, cluster.cards.back())}].push_back(cluster.cards.size() - 1);
  }
  for (const auto& [group, positions] : groups) {
    if (group.second.size() < 2) continue;
    const RankInfo& first = info_of(cluster, static_cast<int>(positions.front()), infos);
    std::vector<int64_t> mbps;
    for (int place : cluster.cards[positions.front()])
      mbps.push_back(first.nics[static_cast<size_t>(place)].mbps);
    const auto dealt = deal(mbps, positions.size());
    for (size_t i = 0; i < dealt.size(); ++i) {
      std::vector<int>& all = cluster.cards[positions[i]];
      std::vector<int> mine;
      for (size_t card : dealt[i]) mine.push_back(all[card]);
      all = std::move(mine);
    }
  }
}

using NicKey = std::pair<std::string, std::string>;  // host, name

/// Calls `use(key, nic)` for each NIC of the rank at `position`.
template <typename Use>
void for_each_card(const Cluster& cluster, int position, const std::vector<RankInfo>& infos,
                   const Use& use) {
  const RankInfo& info = info_of(cluster, position, infos);
  for (int place : cluster.cards[static_cast<size_t>(position)]) {
    const Nic& nic = info.nics[static_cast<size_t>(place)];
    use(NicKey{info.host, nic.name}, nic);
  }
}

/// Number of border ranks that use each NIC.
std::map<NicKey, uint64_t> users_of_nics(const Cluster& cluster,
                                         const std::vector<RankInfo>& infos) {
  std::map<NicKey, uint64_t> users;
  for (int position : cluster.border) {
    for_each_card(cluster, position, infos, [&](const NicKey& key, const Nic&) { ++users[key]; });
  }
  return users;
}

/// Each border rank's part of its NICs' bandwidth, times a common factor; empty if a rate is
/// unknown.
std::vector<uint64_t> bandwidths(const Cluster& cluster, const std::vector<RankInfo>& infos) {
  const auto users = users_of_nics(cluster, infos);
  std::vector<uint64_t> result;
  for (int position : cluster.border) {
    if (cards_mbps(cluster, position, infos) == 0) return {};
    uint64_t sum = 0;
    // At most 65,536 ranks share a NIC, so with this factor no part rounds to 0.
    for_each_card(cluster, position, infos, [&](const NicKey& key, const Nic& nic) {
      sum += (static_cast<uint64_t>(nic.mbps) << 20U) / users.at(key);
    });
    result.push_back(std::max<uint64_t>(1, sum));
  }
  return result;
}

/// round(weight * scale / largest), for weights of up to 2^52.
uint32_t rounded(uint64_t weight, uint64_t scale, uint64_t largest) {
  return static_cast<uint32_t>((2 * weight * scale + largest) / (2 * largest));
}

/// Whether the border ranks share one NIC that a single flow can fill: a core moves more than such
/// a NIC.
bool is_single_flow(const Cluster& cluster, const std::vector<RankInfo>& infos) {
  const auto users = users_of_nics(cluster, infos);
  const int64_t mbps = cards_mbps(cluster, cluster.border.front(), infos);
  return users.size() == 1 && users.begin()->second == cluster.border.size() && mbps > 0 &&
         mbps <= kSingleFlowMbps;
}

/// By NIC, the least distance to a rank that uses it.
std::map<NicKey, int> least_distances(const Cluster& cluster, const std::vector<RankInfo>& infos) {
  std::map<NicKey, int> least;
  for (size_t p = 0; p < cluster.ranks.size(); ++p) {
    for_each_card(cluster, static_cast<int>(p), infos, [&](const NicKey& key, const Nic& nic) {
      int& distance = least.try_emplace(key, nic.distance).first->second;
      distance = std::min(distance, nic.distance);
    });
  }
  return least;
}

/// Finds the border ranks, those nearest to a NIC, and their shares. If no rank has a NIC, all
/// ranks are border ranks.
void find_carriers(Cluster& cluster, const std::vector<RankInfo>& infos) {
  const auto least = least_distances(cluster, infos);
  for (size_t p = 0; p < cluster.ranks.size(); ++p) {
    bool carries = least.empty();
    for_each_card(cluster, static_cast<int>(p), infos, [&](const NicKey& key, const Nic& nic) {
      carries = carries || nic.distance == least.at(key);
    });
    if (carries) cluster.border.push_back(static_cast<int>(p));
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

std::vector<uint32_t> small_shares(const std::vector<uint64_t>& weights) {
  const uint64_t largest = *std::max_element(weights.begin(), weights.end());
  std::vector<uint64_t> scaled;
  for (uint64_t w : weights) scaled.push_back(std::max(1U, rounded(w, kScale, largest)));

  // A cut takes the time max(share / weight) / sum(shares), kept as a fraction.
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

int64_t cards_mbps(const Cluster& cluster, int position, const std::vector<RankInfo>& infos) {
  int64_t sum = 0;
  bool known = true;
  for_each_card(cluster, position, infos, [&](const NicKey&, const Nic& nic) {
    known = known && nic.mbps > 0;
    sum += nic.mbps;
  });
  return known ? sum : 0;
}

void find_border(Cluster& cluster, const std::vector<RankInfo>& infos) {
  find_cards(cluster, infos);
  find_carriers(cluster, infos);
  cluster.single_flow = is_single_flow(cluster, infos);
}

int64_t border_mbps(const Cluster& cluster, const std::vector<RankInfo>& infos) {
  std::map<NicKey, int64_t> nics;
  for (int position : cluster.border) {
    if (cards_mbps(cluster, position, infos) == 0) return 0;
    for_each_card(cluster, position, infos,
                  [&](const NicKey& key, const Nic& nic) { nics[key] = nic.mbps; });
  }
  int64_t sum = 0;
  for (const auto& [key, mbps] : nics) sum += mbps;
  return sum;
}

}  // namespace hetccl::topology
