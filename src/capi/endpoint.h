// The endpoints of this process.
#pragma once

#include "base/clock.h"

namespace hetccl::capi {

/// Closes all endpoints. Resources that a device still copies from or to at `deadline` are leaked.
void close_endpoints(TimePoint deadline);

}  // namespace hetccl::capi
