// A coordinator holds one connection for each rank: more than the 1,024 descriptors that many
// systems let a process open at first.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace hetccl::bootstrap {

/// Makes sure that this process may open `more` descriptors, and raises its limit as far as that
/// takes. SystemError naming both numbers where the hard limit is too low.
Status reserve_descriptors(size_t more);

}  // namespace hetccl::bootstrap
