// The ports that a rank announces to its peers, and the choice of the two that a channel uses.
#pragma once

#include <array>
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
  uint8_t prefix_bits = 0;
  uint32_t mbps = 0;
  abi::Gid gid{};
  uint8_t distance = 0;  ///< net::Distance to the rank's device; sent in the Greeting
};

/// The contents of the address that `listen` returns: the usable ports, without distances, and the
/// address of this transport's listener for connections (transport/tcp).
struct Endpoint {
  std::vector<Offer> offers;
  Address listener;
};

Address encode(const Endpoint& endpoint);
/// Returns InvalidArgument if the bytes are not an endpoint.
Result<Endpoint> decode(const Address& address);

Offer offer_of(const Port& port);

/// How well the network connects two ports, judged by their addresses, from worst to best.
enum class Reach : uint8_t {
  None,    ///< different kinds of ports, or different InfiniBand subnets
  Named,   ///< nothing indicates a network; used only if the user names the transport
  Routed,  ///< different subnets that sites of this kind usually route
  Subnet,  ///< the same subnet
};
Reach reach_between(const Offer& one, const Offer& other);

/// The facts by which both ends of a channel choose its ports.
struct Ends {
  int self = 0, peer = 0;  ///< ranks
  std::vector<Offer> own, theirs;
  Reach least = Reach::Routed;
  uint8_t queues = 1;  ///< number of queue pairs: first this end's wish, then the lesser of both
                       ///< ends'
};

/// Returns the indices of the two ranks' ports for their channel; none if no pair reaches `least`.
/// Both ends compute the same. Prefers the best Reach, then the fastest ports, then the nearest to
/// both ranks' devices, then equal indices, because clusters connect these with each other (rails).
/// Pairs of ranks spread over equally good ports.
std::optional<std::pair<size_t, size_t>> choose_pair(const Ends& ends);

inline constexpr uint8_t kMostQueues = 4;

/// The first bytes that each end sends: the number of queue pairs that it would use, and the
/// distance of each of its ports.
using Greeting = std::array<uint8_t, 1 + kMaxOffers>;
Greeting greet(const Ends& ends);
/// Enters the peer's greeting in `ends`. Returns RemoteError if it is malformed.
Status take_greeting(const Greeting& greeting, Ends& ends);

}  // namespace hetccl::transport::verbs
