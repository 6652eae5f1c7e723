// hetccl's settings in a program for NCCL, whose own may stand in for two of them.
#pragma once

#include "base/config.h"

namespace hetccl::nccl {

/// The settings of the environment. The first call sets HETCCL_SOCKET_IFNAME and HETCCL_DEBUG
/// there, for libhetccl.so too, as NCCL_SOCKET_IFNAME and NCCL_DEBUG say, where they are not set
/// and these mean something to hetccl. Thread-safe.
Result<Config> read_settings();

}  // namespace hetccl::nccl
