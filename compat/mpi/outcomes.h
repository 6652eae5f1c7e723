// How the program's requests for hetccl's work have ended. A request has its error until the
// program learns of it: the MPI cannot hold it, for its own error handler would be that of
// MPI_COMM_WORLD.
#pragma once

#include <atomic>
#include <memory>

#include "mpi/word.h"

namespace hetccl::mpi {

/// Of one request. The code is that of its latest error; 0: none.
struct Outcome {
  std::atomic<int> code{0};
};

/// All outcomes, by handle. The MPI may free requests after this library's end, so they are in no
/// object. Thread-safe; calls nothing of the MPI.
namespace outcomes {

/// Whether there are any requests of hetccl's.
[[nodiscard]] bool exist();
/// Null where the request is none of hetccl's.
[[nodiscard]] std::shared_ptr<Outcome> find(Word request);
void add(Word request, std::shared_ptr<Outcome> outcome);
/// `outcome`: the handle may have been given to another request meanwhile.
void forget(Word request, const Outcome* outcome);

}  // namespace outcomes
}  // namespace hetccl::mpi
