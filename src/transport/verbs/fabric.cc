#include "transport/verbs/fabric.h"

#include <algorithm>
#include <cstring>

namespace hetccl::transport::verbs {
namespace {

constexpr uint8_t kVerbsMagic = 'V';
constexpr size_t kHeadBytes = 2;  // magic, number of offers
constexpr size_t kEach = 2 + sizeof(abi::Gid);
constexpr size_t kSubnetPrefix = 8;

using Pair = std::pair<size_t, size_t>;

std::vector<Pair> find_pairs(const std::vector<Offer>& own, const std::vector<Offer>& theirs,
                             bool rails) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < own.size(); ++i) {
    for (size_t j = 0; j < theirs.size(); ++j) {
      if ((i == j) == rails && may_reach(own[i], theirs[j])) pairs.emplace_back(i, j);
    }
  }
  return pairs;
}

}  // namespace

Offer offer_of(const Port& port) {
  return {port.link, static_cast<uint8_t>(port.gid.type), port.gid.gid};
}

Address encode(const Endpoint& endpoint) {
  const size_t n = std::min(endpoint.offers.size(), kMaxOffers);
  Address bytes = {kVerbsMagic, static_cast<uint8_t>(n)};
  for (size_t i = 0; i < n; ++i) {
    const Offer& offer = endpoint.offers[i];
    bytes.push_back(offer.link);
    bytes.push_back(offer.gid_type);
    bytes.insert(bytes.end(), std::begin(offer.gid.raw), std::end(offer.gid.raw));
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
    Offer offer{at[0], at[1], {}};
    std::memcpy(offer.gid.raw, at + 2, sizeof offer.gid.raw);
    endpoint.offers.push_back(offer);
  }
  endpoint.listener.assign(at, address.data() + address.size());
  return endpoint;
}

bool may_reach(const Offer& one, const Offer& other) {
  if (one.link != other.link) return false;
  if (one.link == abi::kLinkInfiniBand)
    return std::memcmp(one.gid.raw, other.gid.raw, kSubnetPrefix) == 0;
  return one.gid_type == other.gid_type && is_ipv4(one.gid) == is_ipv4(other.gid);
}

std::optional<Pair> choose_pair(const std::vector<Offer>& own, const std::vector<Offer>& theirs,
                                int self, int peer) {
  // Counted from the lower rank's side, so that both ends list the pairs in one order.
  const bool low = self < peer;
  const auto& lower = low ? own : theirs;
  const auto& higher = low ? theirs : own;
  auto pairs = find_pairs(lower, higher, true);
  if (pairs.empty()) pairs = find_pairs(lower, higher, false);
  if (pairs.empty()) return std::nullopt;
  const Pair& chosen = pairs[static_cast<size_t>(self + peer) % pairs.size()];
  return low ? chosen : Pair{chosen.second, chosen.first};
}

}  // namespace hetccl::transport::verbs
