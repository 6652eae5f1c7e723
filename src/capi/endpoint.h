// The process's endpoints.
#pragma once

namespace hetccl::capi {

/// Closes those that are not destroyed: nothing of them moves any more.
void close_endpoints();

}  // namespace hetccl::capi
