// The HIP runtimes that hetccl can use; shared by the two rooms that load one.
#pragma once

#include <string>

#include "base/status.h"

namespace hetccl {

/// Returns the number of hipRuntimeGetVersion as text: 60443484 is "6.4". HIP 3 counted
/// differently: 312 is "3.12".
std::string hip_version_text(int code);

/// Returns Unsupported if `code`, from hipRuntimeGetVersion of the library at `path`, is older than
/// HIP 6. HIP 6 renumbered the memory types (hipMemoryType), so device memory of older runtimes
/// would look like host memory. An unknown code (0) passes.
Status check_hip_version(const std::string& path, int code);

}  // namespace hetccl
