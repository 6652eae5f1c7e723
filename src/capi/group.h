// Calls of one thread between hetcclGroupStart and hetcclGroupEnd.
#pragma once

#include "base/status.h"
#include "comm/communicator.h"
#include "hetccl/hetccl.h"

namespace hetccl::capi {

/// Makes the call; or, in a group, keeps it until the group's end. What the arguments point to,
/// lengths of blocks included, is then read at once or copied.
Status submit(comm::Communicator& communicator, const comm::CollectiveArguments& arguments,
              hetcclStream_t stream);
Status submit(comm::Communicator& communicator, const exec::Message& message,
              hetcclStream_t stream);
/// The same of a collective that reduces by `op`, which is built in or made on the communicator.
Status submit_reduction(comm::Communicator& communicator, hetcclRedOp_t op,
                        comm::CollectiveArguments arguments, hetcclStream_t stream);

/// InvalidUsage where this thread has a group open: `function` cannot be part of one.
Status outside_group(const char* function);

}  // namespace hetccl::capi
