// A communicator's first calls, which connect, allocate and load.
#pragma once

#include <functional>

#include "ccl/nccl/communicator.h"

namespace hetccl::ccl::nccl {

/// Runs every call that plans use, in the sizes for which NCCL has other algorithms, on memory of
/// its own, and waits until all are done. Collective. Aborted once `give_up` says so.
Status warm_up(NcclCommunicator& communicator, int n_ranks, int rank, Workspace& workspace,
               const std::function<bool()>& give_up);

}  // namespace hetccl::ccl::nccl
