// The functions that wait for or test requests, in C and Fortran. While the program waits, hetccl's
// pending work advances and its requests complete. The function that finds a request complete
// returns its error; no other function returns it again.
#pragma once

#include <functional>

#include "mpi/library.h"

namespace hetccl::mpi {

/// Calls one of MPI's functions in one of its languages and returns the error code.
using Caller = std::function<int(const Words&)>;

/// Accessors for the way a language passes requests. The order of arguments is the same in all.
struct Language {
  int (*number)(Word word);                ///< of requests
  Word (*request)(Word array, int index);  ///< returns a handle
  bool (*ignores)(Word statuses);          ///< MPI_STATUS_IGNORE, or MPI_STATUSES_IGNORE
  int first;                               ///< the index of the first request
};

/// The requests that a function waits for.
enum class Which { One, All, Any, Some };

/// Calls `wait`. While hetccl has pending work and `which` is Any or Some, calls `test` in a loop
/// instead.
int wait_for(const Language& language, Which which, const Caller& wait, const Caller& test,
             const Words& words);
/// Calls a function that tests. `keeps`: it does not free requests (MPI_Request_get_status).
int test_for(const Language& language, Which which, const Caller& test, const Words& words,
             bool keeps = false);
/// Starts the request if it is a persistent one of hetccl's; returns whether it is.
bool start_request(Word request, int* code);

}  // namespace hetccl::mpi
