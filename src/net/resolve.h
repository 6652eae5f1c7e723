// Addresses that people write.
#pragma once

#include <string>
#include <vector>

#include "net/socket.h"

namespace hetccl::net {

/// The addresses of "host:port", "10.0.0.1:4711" or "[::1]:4711", in the resolver's order. Waits
/// for the resolver. InvalidArgument says what is wrong with the text, or that the name is unknown.
Result<std::vector<SocketAddress>> resolve(const std::string& place);

}  // namespace hetccl::net
