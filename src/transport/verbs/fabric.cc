#include "transport/verbs/fabric.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/little_endian.h"
#include "net/hardware.h"
#include "net/prefix.h"
#include "transport/rail.h"

namespace hetccl::transport::verbs {
namespace {

constexpr uint8_t kVerbsMagic = 'V';
constexpr size_t kHeadBytes = 2;  // magic, number of offers
constexpr size_t kEach = 3 + sizeof(uint32_t) + sizeof(abi::Gid);
constexpr size_t kSubnetPrefixBits = 64;  // of InfiniBand

using Pair = std::pair<size_t, size_t>;

constexpr size_t kIpv4At = 12;

// Returns which block of addresses a GID belongs to, among those within which sites usually route:
// 10.0.0.0/8, 172.16.0.0/12, all public addresses, and for IPv6 a site's 48 bits of a private
// prefix. 192.168.0.0/16 is none, because its subnets are often cables between two hosts.
int block_of(const abi::Gid& gid) {
  enum : int { kNone, kTen, kSeventeen, kPublic4, kPublic6 };
  const uint8_t first = gid.raw[is_ipv4(gid) ? kIpv4At : 0], second = gid.raw[kIpv4At + 1];
  if (is_link_local(gid)) return kNone;
  if (!is_ipv4(gid)) return first >> 5 == 1 ? kPublic6 : kNone;
  if (first == 10) return kTen;
  if (first == 172 && second >> 4 == 1) return kSeventeen;
  const bool local = first == 127 || (first == 192 && second == 168);
  return local || first >= 224 ? kNone : kPublic4;
}

bool are_routed(const Offer& one, const Offer& other) {
  if (one.gid_type == abi::kGidRoceV1) return false;
  if (is_ipv4(one.gid) || block_of(one.gid) != 0)
    return block_of(one.gid) != 0 && block_of(one.gid) == block_of(other.gid);
  return one.gid.raw[0] >> 1 == 0x7e && net::share_prefix(one.gid.raw, other.gid.raw, 48);
}

// A pair of ports, better if greater.
struct Candidate {
  Reach reach = Reach::None;
  uint32_t mbps = 0;
  int nearness = 0;
  bool rail = false;
  Pair pair;
  [[nodiscard]] auto rank() const { return std::tuple(reach, mbps, nearness, rail); }
};

std::vector<Candidate> best_pairs(const std::vector<Offer>& own, const std::vector<Offer>& theirs,
                                  Reach least) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < own.size(); ++i) {
    for (size_t j = 0; j < theirs.size(); ++j) {
      const Reach reach = reach_between(own[i], theirs[j]);
      if (reach == Reach::None || reach < least) continue;
      const int apart = own[i].distance + theirs[j].distance;
      all.push_back({reach, std::min(own[i].mbps, theirs[j].mbps), -apart, i == j, {i, j}});
    }
  }
  const auto best =
      std::max_element(all.begin(), all.end(),
                       [](const Candidate& a, const Candidate& b) { return a.rank() < b.rank(); });
  if (best == all.end()) return all;
  std::erase_if(all, [rank = best->rank()](const Candidate& one) { return one.rank() != rank; });
  return all;
}

}  // namespace

Offer offer_of(const Port& port) {
  return {port.link, static_cast<uint8_t>(port.gid.type), port.prefix_bits, port.mbps, port.gid.gid,
          net::kNear};
}

Address encode(const Endpoint& endpoint) {
  const size_t n = std::min(endpoint.offers.size(), kMaxOffers);
  Address bytes = {kVerbsMagic, static_cast<uint8_t>(n)};
  for (size_t i = 0; i < n; ++i) {
    const Offer& offer = endpoint.offers[i];
    uint8_t each[kEach] = {offer.link, offer.gid_type, offer.prefix_bits};
    put_number(each + 3, offer.mbps);
    std::memcpy(each + 7, offer.gid.raw, sizeof offer.gid.raw);
    bytes.insert(bytes.end(), std::begin(each), std::end(each));
  }
  bytes.insert(bytes.end(), endpoint.listener.begin(), endpoint.listener.end());
  return bytes;
}

Result<Endpoint> decode(const Address& address) {
  const bool sound = address.size() > kHeadBytes && address[0] == kVerbsMagic &&
                     address[1] <= kMaxOffers && address.size() > kHeadBytes + address[1] * kEach;
  if (!sound)
    return error(ErrorCode::InvalidArgument, "%zu bytes that are not an address of transport verbs",
                 address.size());
  Endpoint endpoint;
  const uint8_t* at = address.data() + kHeadBytes;
  for (uint8_t i = 0; i < address[1]; ++i, at += kEach) {
    Offer offer{at[0], at[1], at[2], get_number<uint32_t>(at + 3), {}, net::kNear};
    std::memcpy(offer.gid.raw, at + 7, sizeof offer.gid.raw);
    endpoint.offers.push_back(offer);
  }
  endpoint.listener.assign(at, address.data() + address.size());
  return endpoint;
}

Reach reach_between(const Offer& one, const Offer& other) {
  if (one.link != other.link) return Reach::None;
  if (one.link == abi::kLinkInfiniBand)
    return net::share_prefix(one.gid.raw, other.gid.raw, kSubnetPrefixBits) ? Reach::Subnet
                                                                            : Reach::None;
  if (one.gid_type != other.gid_type || is_ipv4(one.gid) != is_ipv4(other.gid)) return Reach::None;
  const size_t first = is_ipv4(one.gid) ? kIpv4At : 0, most = (sizeof one.gid.raw - first) * 8;
  const size_t prefix = std::max(one.prefix_bits, other.prefix_bits);
  if (net::share_prefix(one.gid.raw + first, other.gid.raw + first,
                        prefix == 0 || prefix > most ? most : prefix))
    return Reach::Subnet;
  return are_routed(one, other) ? Reach::Routed : Reach::Named;
}

std::optional<Pair> choose_pair(const Ends& ends) {
  // Takes the lower rank's side first, so that both ends list the pairs in the same order.
  const bool low = ends.self < ends.peer;
  const auto pairs = low ? best_pairs(ends.own, ends.theirs, ends.least)
                         : best_pairs(ends.theirs, ends.own, ends.least);
  if (pairs.empty()) return std::nullopt;
  const Pair& chosen = pairs[rail_of(ends.self, ends.peer, pairs.size())].pair;
  return low ? chosen : Pair{chosen.second, chosen.first};
}

Greeting greet(const Ends& ends) {
  Greeting greeting{ends.queues};
  for (size_t i = 0; i < std::min(ends.own.size(), kMaxOffers); ++i)
    greeting[1 + i] = ends.own[i].distance;
  return greeting;
}

Status take_greeting(const Greeting& greeting, Ends& ends) {
  bool sound = greeting[0] >= 1 && greeting[0] <= kMostQueues;
  for (size_t i = 0; i < kMaxOffers; ++i) {
    const uint8_t distance = greeting[1 + i];
    sound = sound && distance <= (i < ends.theirs.size() ? net::kSystem : 0);
    if (i < ends.theirs.size()) ends.theirs[i].distance = distance;
  }
  if (!sound) return error(ErrorCode::RemoteError, "what arrived is not how its ports are used");
  ends.queues = std::min(ends.queues, greeting[0]);
  return {};
}

}  // namespace hetccl::transport::verbs
