// hetccl's settings in a program for NCCL; two of NCCL's settings serve as defaults.
#pragma once

#include "base/config.h"

namespace hetccl::nccl {

/// Reads the settings from the environment. The first call sets HETCCL_SOCKET_IFNAME from
/// NCCL_SOCKET_IFNAME and HETCCL_DEBUG from NCCL_DEBUG, for libhetccl.so too, unless they are set
/// or NCCL's value means nothing to hetccl. Thread-safe.
Result<Config> read_settings();

}  // namespace hetccl::nccl
