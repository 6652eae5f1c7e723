// Memory that a NIC reaches is locked, which the system limits (ulimit -l).
#pragma once

#include <cstddef>

#include "base/status.h"

namespace hetccl::transport::verbs {

/// SystemError naming the limit and the remedy where this process may not lock `bytes` for
/// `channels` more channels. A process with CAP_IPC_LOCK has no limit.
Status check_locked_memory(size_t bytes, size_t channels);

}  // namespace hetccl::transport::verbs
