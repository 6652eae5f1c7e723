// The data that a peer needs to dial this rank: its addresses, their NICs, and the number of
// streams per channel.
#pragma once

#include <string>
#include <vector>

#include "net/socket.h"
#include "transport/transport.h"

namespace hetccl::transport::tcp {

inline constexpr uint32_t kMaxStreams = 32;
inline constexpr size_t kMaxAddresses = 16;
inline constexpr size_t kMaxCardName = 15;  // the limit of Linux for an interface's name

/// The NIC of an address.
struct CardOf {
  std::string name;  ///< its interface; "" where that carries no data unless nothing else does
  int prefix_bits = 0;
  int64_t mbps = 0;  ///< 0: unknown
};

struct Endpoint {
  uint32_t streams = 1;
  std::vector<net::SocketAddress> addresses;
  std::vector<CardOf> cards;  ///< one for each address, or none at all
};

/// Returns where `interfaces` listen at `port`, at most kMaxAddresses of them. Interfaces that are
/// not among `cards` get no NIC.
Endpoint endpoint_of(const std::vector<net::Interface>& interfaces,
                     const std::vector<std::string>& cards, uint16_t port, uint32_t streams);

Address encode(const Endpoint& endpoint);
/// Returns InvalidArgument if the bytes are not an endpoint.
Result<Endpoint> decode(const Address& address);

}  // namespace hetccl::transport::tcp
