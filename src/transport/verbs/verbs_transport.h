// Messages between hosts by RDMA (InfiniBand, RoCE), through libibverbs where the host has it.
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

/// Between hosts, before TCP.
inline constexpr int kVerbsScore = 20;
int score_verbs(const ChannelEnd& local, const ChannelEnd& peer);

/// Uses what transport/tcp uses of the configuration for the connections over which ranks prove
/// themselves, and HETCCL_RDMA_*. Unsupported where the host has no library or no device;
/// SystemError with each port's reason where none can be used, InvalidArgument where a setting
/// excludes it, and SystemError where too little memory may be locked.
Result<std::unique_ptr<Transport>> make_verbs_transport(const Config& config, const Log& log);
/// The same over that library.
Result<std::unique_ptr<Transport>> make_verbs_transport(std::shared_ptr<const verbs::Api> api,
                                                        const Config& config, const Log& log);

}  // namespace hetccl::transport
