// Kernels that hipModuleGetFunction returned.
#pragma once

#include "cuda/driver.h"

namespace forward {

/// Returns whether hipModuleGetFunction returned `function`. The runtime-style calls
/// (hipLaunchKernel, hipFuncGetAttributes) accept only such functions: this library registers no
/// host stubs, because no compiler for AMD takes part.
[[nodiscard]] bool known_function(const void* function);

}  // namespace forward
