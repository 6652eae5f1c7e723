// The functions that wait for requests, of C and of Fortran: while the program waits, what hetccl
// has under way goes on, and its requests become complete.
#pragma once

#include <functional>
#include <vector>

#include "mpi/library.h"

namespace hetccl::mpi {

/// One of MPI's functions in one of its languages: its error code.
using Caller = std::function<int(const Words&)>;

/// Calls `wait`, which waits for all of `requests`, once hetccl has done its part of them.
int wait_for_all(const Caller& wait, const Words& words,
                 const std::function<std::vector<Word>()>& requests);
/// Calls `wait`, which waits for one of several. While hetccl has calls under way it calls `test`
/// instead, again and again: the same arguments with a flag at place `flag`.
int wait_for_any(const Caller& wait, const Caller& test, const Words& words, size_t flag);
/// The same of MPI_Waitsome, which tells in the int at `count` how many are complete.
int wait_for_some(const Caller& wait, const Caller& test, const Words& words, const int* count);
/// Calls a function that tests.
int test_for(const Caller& test, const Words& words);
/// Whether the request is one of hetccl's persistent ones, which is then started.
bool start_request(Word request, int* code);

}  // namespace hetccl::mpi
