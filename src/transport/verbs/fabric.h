// What a rank tells its peers of its ports, and through which two of them a channel runs.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/device.h"

namespace hetccl::transport::verbs {

inline constexpr size_t kMaxOffers = 8;

/// A usable port, as a peer sees it.
struct Offer {
  uint8_t link = 0;
  uint8_t gid_type = 0;
  abi::Gid gid{};
};

/// What `listen` returns: the usable ports, then where transport/tcp's listener of this transport
/// is.
struct Endpoint {
  std::vector<Offer> offers;
  Address listener;
};

Address encode(const Endpoint& endpoint);
/// InvalidArgument where the bytes are not an endpoint.
Result<Endpoint> decode(const Address& address);

Offer offer_of(const Port& port);

/// Whether two ports can be on one fabric: both RoCE of one version and address family, or both
/// InfiniBand with one subnet prefix.
bool may_reach(const Offer& one, const Offer& other);

/// The indices of the ports between ranks `self` and `peer`; both ends compute the same. Ports of
/// one index are rails, which clusters connect with each other, and are preferred; pairs of ranks
/// spread over them. Empty where no two can reach each other.
std::optional<std::pair<size_t, size_t>> choose_pair(const std::vector<Offer>& own,
                                                     const std::vector<Offer>& theirs, int self,
                                                     int peer);

}  // namespace hetccl::transport::verbs
