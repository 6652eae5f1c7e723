// Device attributes: HIP's enumerators mapped to NVIDIA's numbers.
#pragma once

#include "cuda/driver.h"
#include "hip/hip.h"

namespace forward {

/// Reads a HIP attribute of `device`. Returns hipErrorInvalidValue, after it counted a rejection,
/// if AMD's header does not define `attribute`.
[[nodiscard]] hipError_t read_attribute(const cuda::Driver& driver, int* value,
                                        hipDeviceAttribute_t attribute, int device);

}  // namespace forward
