// Turns the kernels' source into images that a device loads: from the cache, or compiled and
// cached.
#pragma once

#include <string>

#include "base/log.h"
#include "device/kernels/cache.h"
#include "device/kernels/compiler.h"

namespace hetccl::device::kernels {

/// Returns all parts for `architecture`. Compiling blocks for seconds. A cache that cannot be used
/// is reported in `log` and only costs time. Returns SystemError with the compiler's output.
Result<Images> build(const Compiler& compiler, const std::string& architecture, const Cache& cache,
                     const Log& log);

/// Returns everything that compiled kernels depend on.
std::string key_of(const Compiler& compiler, const std::string& architecture);

}  // namespace hetccl::device::kernels
