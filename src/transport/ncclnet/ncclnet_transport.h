// Messages between hosts by a net plug-in of NCCL's (libnccl-net-*.so), which carries them for
// ranks of any vendor.
#pragma once

#include <memory>

#include "base/config.h"
#include "base/log.h"
#include "transport/transport.h"

namespace hetccl::transport {

/// Between hosts, before all others: a plug-in is used only where the user names it.
inline constexpr int kNcclNetScore = 30;
int score_ncclnet(const ChannelEnd& local, const ChannelEnd& peer);

/// Loads the plug-in that HETCCL_NET_PLUGIN names. Uses what transport/tcp uses of the
/// configuration for the connections over which ranks prove themselves. SystemError where the
/// plug-in cannot be loaded or has no device that can be used.
Result<std::unique_ptr<Transport>> make_ncclnet_transport(const Config& config, const Log& log);

}  // namespace hetccl::transport
