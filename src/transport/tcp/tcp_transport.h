// Messages between hosts: a channel is a few TCP connections, and messages are striped over them.
#pragma once

#include <memory>

#include "base/config.h"
#include "base/log.h"
#include "transport/transport.h"

namespace hetccl::transport {

/// The score between any two ranks. Shared memory is faster.
inline constexpr int kTcpScore = 10;
int score_tcp(const ChannelEnd& local, const ChannelEnd& peer);

/// Uses HETCCL_SOCKET_IFNAME, HETCCL_SOCKET_FAMILY, HETCCL_PORT_RANGE, HETCCL_TCP_STREAMS,
/// HETCCL_TCP_THREADS and HETCCL_ENCRYPT.
Result<std::unique_ptr<Transport>> make_tcp_transport(const Config& config, const Log& log);

}  // namespace hetccl::transport
