// Chooses the NICs of a channel's streams: NICs in the same subnet, and more streams for faster
// NICs.
#pragma once

#include <string>
#include <vector>

#include "net/socket.h"
#include "transport/tcp/address.h"

namespace hetccl::transport::tcp {

/// Returns, for each of `peer.streams` streams, the routes to try, best first. First come routes
/// from a NIC of `own_cards` to one of `peer_cards` in its subnet; they cover all NICs of both ends
/// if there are enough streams. Then come other NICs in one subnet, then any address of the peer by
/// the system's routing table. That last kind is the only one if both hosts have one NIC, or share
/// no subnet. Empty names: all NICs.
std::vector<std::vector<net::Route>> routes_between(const Endpoint& own, const Endpoint& peer,
                                                    const std::vector<std::string>& own_cards,
                                                    const std::vector<std::string>& peer_cards);

/// Returns the NIC that has `address`; with an empty name if none has it.
CardOf card_at(const net::SocketAddress& address, const Endpoint& own);
/// Returns how many NICs an endpoint names.
size_t count_cards(const Endpoint& endpoint);

}  // namespace hetccl::transport::tcp
