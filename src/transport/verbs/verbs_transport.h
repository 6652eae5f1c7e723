// Messages between hosts by RDMA (InfiniBand, RoCE) through libibverbs, if the host has it.
#pragma once

#include <memory>
#include <string>

#include "base/config.h"
#include "base/log.h"
#include "transport/transport.h"

namespace hetccl::transport {

namespace verbs {
struct Api;
}

/// The score between hosts: above TCP.
inline constexpr int kVerbsScore = 20;
int score_verbs(const ChannelEnd& local, const ChannelEnd& peer);

/// Uses HETCCL_RDMA_*, and for authenticated connections the same settings as transport/tcp.
/// Returns Unsupported if the host has no library or no device, InvalidArgument if a setting
/// excludes it, and SystemError if no port is usable (with each port's reason) or too little memory
/// may be locked.
Result<std::unique_ptr<Transport>> make_verbs_transport(const Config& config, const Log& log);
/// The same with the library `api`.
Result<std::unique_ptr<Transport>> make_verbs_transport(std::shared_ptr<const verbs::Api> api,
                                                        const Config& config, const Log& log);

}  // namespace hetccl::transport
