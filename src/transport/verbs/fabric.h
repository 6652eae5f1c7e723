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
  uint8_t distance = 0;  ///< net::Distance to the rank's device; told when a channel begins
};

/// The address that `listen` returns: the usable ports without distances, then that of
/// transport/tcp's listener of this transport.
struct Endpoint {
  std::vector<Offer> offers;
  Address listener;
};

Address encode(const Endpoint& endpoint);
/// InvalidArgument where the bytes are not an endpoint.
Result<Endpoint> decode(const Address& address);

Offer offer_of(const Port& port);

/// The network between two ports, as far as their addresses tell; the later the better.
enum class Reach : uint8_t {
  None,    ///< of different kinds, or InfiniBand subnets
  Named,   ///< nothing speaks for it: for users who name the transport
  Routed,  ///< in subnets between which networks of this size are usually routed
  Subnet,  ///< in one subnet
};
Reach reach_between(const Offer& one, const Offer& other);

/// Both ends of a channel to be.
struct Ends {
  int self = 0, peer = 0;  ///< ranks
  std::vector<Offer> own, theirs;
  Reach least = Reach::Routed;
  uint8_t queues = 1;  ///< queue pairs that this end would use, then that both do
};

/// The indices of the ports between the two ranks, which reach each other at `least` so well; both
/// ends compute the same. Those that reach each other best come first, then the fastest, then those
/// nearest to both ranks' devices, then rails: ports of one index, which clusters connect with each
/// other. Pairs of ranks spread over the equals. Empty where there is no such pair.
std::optional<std::pair<size_t, size_t>> choose_pair(const Ends& ends);

inline constexpr uint8_t kMostQueues = 4;

/// With these bytes a channel begins: how many queue pairs this end would use, and how far each of
/// its ports is.
using Greeting = std::array<uint8_t, 1 + kMaxOffers>;
Greeting greet(const Ends& ends);
/// Notes what the peer's greeting says. RemoteError where it is none.
Status take_greeting(const Greeting& greeting, Ends& ends);

}  // namespace hetccl::transport::verbs
