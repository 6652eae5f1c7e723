// Text that precedes a HIP program, so that NVRTC compiles its HIP branch.
#pragma once

#include <string>

namespace forward {

/// Returns CUDA source that defines HIP's macros and built-ins and hides NVRTC's own macros.
[[nodiscard]] std::string prelude();

}  // namespace forward
