// No exception of this library passes a frame of C or Fortran: it becomes an error of the MPI call.
#pragma once

#include <exception>

#include "mpi/word.h"

namespace hetccl::mpi {

/// Makes an exception, or an unknown one (`what` is null), the error of a call on `comm`, as the
/// communicator's error handler would have it: the error code. Null: on MPI_COMM_WORLD.
int raise_exception(const char* what, Word comm) noexcept;

/// Returns what `body` returns, an MPI error code, or the code of the exception that left it.
template <typename Body>
int guarded(const Body& body, Word comm = 0) noexcept {
  try {
    return body();
  } catch (const std::exception& exception) {
    return raise_exception(exception.what(), comm);
  } catch (...) {
    return raise_exception(nullptr, comm);
  }
}

}  // namespace hetccl::mpi
