/* An MPI program that has no memory for one allocation of the library that it preloads, then for
 * the next one, and so on: no call of MPI ends the process. One rank. Link with -rdynamic, so that
 * this operator new is the library's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static __thread int left = -1; /* allocations of this thread until one fails; -1: none does */
static int failed;

void* _Znwm(size_t bytes) { /* operator new(size_t) */
  if (left == 0) {
    void (*throw_it)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv");
    ++failed;
    left = -1;
    throw_it();
  }
  if (left > 0) --left;
  return malloc(bytes > 0 ? bytes : 1);
}

/* Calls that make hetccl's state of a communicator, use it, and end it. */
static int use(int how) {
  int in = 1, out = 0, flag = 0, code = 0;
  MPI_Comm comm;
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Comm_dup(MPI_COMM_SELF, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  left = how;
  code = MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm);
  if (code == MPI_SUCCESS) code = MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm, requests);
  if (code == MPI_SUCCESS) code = MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
  if (code == MPI_SUCCESS) code = MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  left = -1;
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  MPI_Comm_free(&comm);
  return code;
}

int main(int argc, char** argv) {
  int errors = 0, how = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  use(-1);
  for (int before = -1; failed != before; ++how) {
    before = failed;
    if (use(how) != MPI_SUCCESS) ++errors;
  }
  printf("%d allocations failed, %d errors\n", failed, errors);
  MPI_Finalize();
  return 0;
}
