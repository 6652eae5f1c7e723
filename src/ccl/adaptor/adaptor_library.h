// Libraries of clusters of hosts that are found at run time: adaptors (hetccl/adaptor.h).
#pragma once

#include <memory>

#include "adaptor/adaptor.h"
#include "base/cancel.h"
#include "ccl/ccl.h"

namespace hetccl::ccl {

// Of adaptors that have a library. None of its calls that may wait for other ranks can hold up the
// caller beyond a limit.

/// How well it serves this process; 0: it cannot. To be asked once.
Result<int> score_of(const std::shared_ptr<const adaptor::Adaptor>& adaptor,
                     const WaitLimit& limit);

/// Streams are `TaskQueue*`, as those of the host library.
std::unique_ptr<Library> make_adaptor_library(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor);

}  // namespace hetccl::ccl
