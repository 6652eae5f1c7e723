// What this rank says of itself: the machine, read once at init.
#pragma once

#include "base/config.h"
#include "base/status.h"
#include "ccl/ccl.h"
#include "device/device.h"
#include "topology/topology.h"

namespace hetccl::comm {

/// RankInfo of `rank` on `device`, whose cluster uses `library`. `host_id` and `label` override the
/// configuration when not empty. InvalidArgument when HETCCL_SOCKET_IFNAME names nothing.
Result<topology::RankInfo> probe(int rank, const device::Device& device,
                                 const ccl::Library& library, const Config& config,
                                 const std::string& host_id, const std::string& label);

}  // namespace hetccl::comm
