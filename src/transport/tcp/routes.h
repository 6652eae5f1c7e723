// By which cards the streams of a channel go: card to card, where two share a subnet, and more of
// them where cards are faster.
#pragma once

#include <string>
#include <vector>

#include "net/socket.h"
#include "transport/tcp/address.h"

namespace hetccl::transport::tcp {

/// For each of `peer.streams` streams the routes to try, best first: from a card of `own_cards` to
/// one of `peer_cards` in its subnet, so that each card of both ends has a stream while there are
/// enough; then between other cards in one subnet; then wherever the peer listens, as the system's
/// routing table says. The last alone where both hosts have one card, or no subnet in common. Empty
/// names: all cards.
std::vector<std::vector<net::Route>> routes_between(const Endpoint& own, const Endpoint& peer,
                                                    const std::vector<std::string>& own_cards,
                                                    const std::vector<std::string>& peer_cards);

/// The card that has `address`; one without a name where none does.
CardOf card_at(const net::SocketAddress& address, const Endpoint& own);
/// How many cards an endpoint names.
size_t count_cards(const Endpoint& endpoint);

}  // namespace hetccl::transport::tcp
