// Errors of the requests that stand for hetccl's work. An error is kept here until the program
// waits for or tests the request. The MPI cannot keep it: it would call the error handler of
// MPI_COMM_WORLD.
#pragma once

#include <atomic>
#include <memory>

#include "mpi/word.h"

namespace hetccl::mpi {

/// Outcome of one request: the code of its latest error, 0 if none.
struct Outcome {
  std::atomic<int> code{0};
};

/// All outcomes, by handle. Global, because the MPI may free requests after this library has shut
/// down. Thread-safe; calls no MPI function.
namespace outcomes {

/// Whether hetccl has any requests.
[[nodiscard]] bool exist();
/// Returns null if the request is not hetccl's.
[[nodiscard]] std::shared_ptr<Outcome> find(Word request);
void add(Word request, std::shared_ptr<Outcome> outcome);
/// Removes the entry of `request` if it still is `outcome`: the MPI may have reused the handle.
void forget(Word request, const Outcome* outcome);

}  // namespace outcomes
}  // namespace hetccl::mpi
