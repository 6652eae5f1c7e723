// The name that the library gives to a device.
#pragma once

#include <string>

#include "cuda/driver.h"

namespace forward {

/// Returns "<NVIDIA's name> (HIP forwarded to NVIDIA by a test library, not AMD hardware)".
[[nodiscard]] std::string device_name(const cuda::Driver& driver, int device);

}  // namespace forward
