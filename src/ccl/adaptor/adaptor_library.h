// Libraries for host clusters found at run time: adaptors (hetccl/adaptor.h).
#pragma once

#include <memory>

#include "adaptor/adaptor.h"
#include "base/cancel.h"
#include "ccl/ccl.h"

namespace hetccl::ccl {

// These functions take adaptors that have a library. A call that may wait for other ranks returns
// within its limit, even if the adaptor does not.

/// Returns the adaptor's score for this process; 0: it cannot serve it. Call once.
Result<int> score_of(const std::shared_ptr<const adaptor::Adaptor>& adaptor,
                     const WaitLimit& limit);

/// Streams are `TaskQueue*`, as in the host library.
std::unique_ptr<Library> make_adaptor_library(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor);

}  // namespace hetccl::ccl
