// The process's endpoints.
#pragma once

#include "base/clock.h"

namespace hetccl::capi {

/// Closes those that are not destroyed. What a device still copies at `deadline` stays.
void close_endpoints(TimePoint deadline);

}  // namespace hetccl::capi
