// Raises the limit of open files when a job needs more descriptors than the 1,024 that many systems
// let a process open at first.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace hetccl {

/// Makes sure that this process may open `more` descriptors, and raises its soft limit as far as
/// that takes. SystemError naming both numbers where the hard limit is too low. Thread-safe.
Status reserve_descriptors(size_t more);

}  // namespace hetccl
