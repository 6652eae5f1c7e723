// The HIP runtimes that hetccl can use, for the two rooms that load one.
#pragma once

#include <string>

#include "base/status.h"

namespace hetccl {

/// The number of hipRuntimeGetVersion as text: 60443484 is "6.4". HIP 3 counted otherwise: 312 is
/// "3.12".
std::string hip_version_text(int code);

/// Unsupported where `code`, from hipRuntimeGetVersion of the library at `path`, is older than HIP
/// 6, which renumbered the types of memory (hipMemoryType): older runtimes' device memory would
/// pass for memory of the host. A code that is not known (0) passes.
Status check_hip_version(const std::string& path, int code);

}  // namespace hetccl
