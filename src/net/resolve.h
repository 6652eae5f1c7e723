// Resolves addresses that people write.
#pragma once

#include <string>
#include <vector>

#include "net/socket.h"

namespace hetccl::net {

/// Returns the addresses of "host:port", "10.0.0.1:4711" or "[::1]:4711", in the resolver's order.
/// Blocks for the resolver. Returns InvalidArgument for a malformed text or an unknown name.
Result<std::vector<SocketAddress>> resolve(const std::string& place);

}  // namespace hetccl::net
