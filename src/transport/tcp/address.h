// What a peer must know to dial this rank: where it listens, and with how many streams per channel.
#pragma once

#include <vector>

#include "net/socket.h"
#include "transport/transport.h"

namespace hetccl::transport::tcp {

inline constexpr uint32_t kMaxStreams = 32;
inline constexpr size_t kMaxAddresses = 16;

struct Endpoint {
  uint32_t streams = 1;
  std::vector<net::SocketAddress> addresses;
};

Address encode(const Endpoint& endpoint);
/// InvalidArgument where the bytes are not an endpoint.
Result<Endpoint> decode(const Address& address);

}  // namespace hetccl::transport::tcp
