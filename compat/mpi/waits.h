// The functions that wait for requests, of C and of Fortran: while the program waits, what hetccl
// has under way goes on, and its requests become complete. A function that finds such a request
// complete has its error, and no other function has it.
#pragma once

#include <functional>

#include "mpi/library.h"

namespace hetccl::mpi {

/// One of MPI's functions in one of its languages: its error code.
using Caller = std::function<int(const Words&)>;

/// How a language passes requests. The order of arguments is the same in all.
struct Language {
  int (*number)(Word word);                ///< how many requests there are
  Word (*request)(Word array, int index);  ///< a handle
  bool (*ignores)(Word statuses);          ///< MPI_STATUS_IGNORE, or MPI_STATUSES_IGNORE
  int first;                               ///< the index of the first request
};

/// Which of its requests a function waits for.
enum class Which { One, All, Any, Some };

/// Calls `wait`. While hetccl has calls under way, and `which` is Any or Some, it calls `test`
/// instead, again and again.
int wait_for(const Language& language, Which which, const Caller& wait, const Caller& test,
             const Words& words);
/// Calls a function that tests. `keeps`: it leaves requests as they are (MPI_Request_get_status).
int test_for(const Language& language, Which which, const Caller& test, const Words& words,
             bool keeps = false);
/// Whether the request is one of hetccl's persistent ones, which is then started.
bool start_request(Word request, int* code);

}  // namespace hetccl::mpi
