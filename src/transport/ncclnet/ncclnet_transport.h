// Messages between hosts through one of NCCL's net plug-ins (libnccl-net-*.so), for ranks of any
// vendor.
#pragma once

#include <memory>

#include "base/config.h"
#include "base/log.h"
#include "transport/transport.h"

namespace hetccl::transport {

/// The score between hosts: above all other transports, because a plug-in is used only if the user
/// names it.
inline constexpr int kNcclNetScore = 30;
int score_ncclnet(const ChannelEnd& local, const ChannelEnd& peer);

/// Loads the plug-in that HETCCL_NET_PLUGIN names. Control connections use the same settings as
/// transport/tcp. Returns SystemError if the plug-in cannot be loaded or has no usable device.
Result<std::unique_ptr<Transport>> make_ncclnet_transport(const Config& config, const Log& log);

}  // namespace hetccl::transport
