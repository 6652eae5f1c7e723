// Transports that are found at run time: adaptors (hetccl/adaptor.h).
#pragma once

#include <memory>
#include <string>

#include "adaptor/adaptor.h"
#include "base/config.h"
#include "base/log.h"
#include "transport/transport.h"

namespace hetccl::transport {

// Of adaptors that have a transport. None of its calls that may wait for other ranks can hold up
// the caller beyond a limit.

/// "<name>-<version>": ranks use it with each other where both have it.
std::string name_of_transport(const adaptor::Adaptor& adaptor);
int score_adaptor(const adaptor::Adaptor& adaptor, const ChannelEnd& local, const ChannelEnd& peer);
/// Whether all that it moves is encrypted.
bool encrypts(const adaptor::Adaptor& adaptor);

/// Opened: it listens. Uses HETCCL_SOCKET_IFNAME and HETCCL_SOCKET_FAMILY.
Result<std::unique_ptr<Transport>> make_adaptor_transport(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor, const Config& config, const Log& log);

}  // namespace hetccl::transport
