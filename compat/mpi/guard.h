// Exceptions of this library never unwind into C or Fortran frames: they become errors of the MPI
// call.
#pragma once

#include <exception>

#include "mpi/word.h"

namespace hetccl::mpi {

/// Raises an exception, an unknown one if `what` is null, as an error of a call on `comm` (null:
/// MPI_COMM_WORLD) through the communicator's error handler. Returns the error code.
int raise_exception(const char* what, Word comm) noexcept;

/// Returns the MPI error code that `body` returns, or that of the exception it throws.
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
