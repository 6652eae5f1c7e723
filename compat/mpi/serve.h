// Serves a collective that the program calls, from its words to its result.
#pragma once

#include "mpi/call.h"

namespace hetccl::mpi {

/// Returns the MPI error code of the call. Errors of hetccl, exceptions included, go to the
/// communicator's error handler. Only the words of `call` are filled in.
int serve(MpiCall call) noexcept;

}  // namespace hetccl::mpi
