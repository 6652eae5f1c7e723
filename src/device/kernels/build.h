// From the kernels' source to what a device loads: out of the cache, or compiled and cached.
#pragma once

#include <string>

#include "base/log.h"
#include "device/kernels/cache.h"
#include "device/kernels/compiler.h"

namespace hetccl::device::kernels {

/// All parts for `architecture`. Blocks for seconds where they have to be compiled. A cache that
/// cannot be used is told in `log` and costs time only. SystemError with the compiler's words.
Result<Images> build(const Compiler& compiler, const std::string& architecture, const Cache& cache,
                     const Log& log);

/// What compiled kernels depend on.
std::string key_of(const Compiler& compiler, const std::string& architecture);

}  // namespace hetccl::device::kernels
