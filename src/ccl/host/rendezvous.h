// The meeting of a host cluster's ranks in their segment.
#pragma once

#include <cstdint>
#include <memory>

#include "base/cancel.h"
#include "base/shared_memory.h"
#include "base/status.h"
#include "base/waker.h"
#include "ccl/host/member.h"

namespace hetccl::ccl::host {

/// Joins `rank` in `memory` (`geometry.total_bytes()` long) and waits for the others, within
/// `limit`; Timeout names the missing ranks. On return every rank has attached, so the creator's
/// descriptor is closed.
Result<std::shared_ptr<Member>> join(SharedMemory memory, const Geometry& geometry, int rank,
                                     Waker* waker, const WaitLimit& limit);

}  // namespace hetccl::ccl::host
