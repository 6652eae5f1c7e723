// Maps error codes between NVIDIA's driver and HIP.
#pragma once

#include "hip/hip.h"

namespace forward {

/// Returns HIP's code for a driver code. A code that HIP lacks becomes hipErrorUnknown.
[[nodiscard]] hipError_t from_cuda(int code);

}  // namespace forward
