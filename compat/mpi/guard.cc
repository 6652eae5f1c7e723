#include "mpi/guard.h"

#include <string>

#include "base/log.h"
#include "mpi/library.h"

namespace hetccl::mpi {

int raise_exception(const char* what, Word comm) noexcept {
  const Library& library = mpi();
  int code = library.abi.err_other;
  // Building the text may run out of memory, and so may looking up a function's name.
  try {
    const std::string text =
        std::string("hetccl: ") + (what != nullptr ? what : "an unknown error");
    Log().error("%s: an MPI call has failed", text.c_str());
    code = library.error_code(text);
  } catch (...) {
    code = library.abi.err_other;
  }
  try {
    return library.raise(comm != 0 ? comm : library.comm_world, code);
  } catch (...) {
    return code;
  }
}

}  // namespace hetccl::mpi
