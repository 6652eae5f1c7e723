// Transports found at run time: adaptors (hetccl/adaptor.h).
#pragma once

#include <memory>
#include <string>

#include "adaptor/adaptor.h"
#include "base/config.h"
#include "base/log.h"
#include "transport/transport.h"

namespace hetccl::transport {

// These functions take adaptors that have a transport. A call that may wait for other ranks returns
// within its limit, even if the adaptor does not.

/// Returns "<name>-<version>". Two ranks use the transport if both have this name.
std::string name_of_transport(const adaptor::Adaptor& adaptor);
int score_adaptor(const adaptor::Adaptor& adaptor, const ChannelEnd& local, const ChannelEnd& peer);
/// Returns whether the adaptor encrypts everything that it sends.
bool encrypts(const adaptor::Adaptor& adaptor);

/// Opens the transport, which listens. Uses HETCCL_SOCKET_IFNAME and HETCCL_SOCKET_FAMILY.
Result<std::unique_ptr<Transport>> make_adaptor_transport(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor, const Config& config, const Log& log);

}  // namespace hetccl::transport
