// Raises the limit of open files if a job needs more than the 1,024 descriptors that many systems
// allow initially.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace hetccl {

/// Ensures that this process may open `more` descriptors, and raises its soft limit as far as
/// needed. Returns SystemError naming both numbers if the hard limit is too low. Thread-safe.
Status reserve_descriptors(size_t more);

}  // namespace hetccl
