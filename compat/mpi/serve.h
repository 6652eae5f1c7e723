// A collective that the program calls, from its words to its result.
#pragma once

#include "mpi/call.h"

namespace hetccl::mpi {

/// The result of the MPI function of that form: an MPI error code. Errors of hetccl go to the
/// communicator's error handler, exceptions too. `call` has its words, and no more.
int serve(MpiCall call) noexcept;

}  // namespace hetccl::mpi
