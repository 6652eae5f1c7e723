// The C functions: MPI_Init, and all forms of the collectives.
#include "mpi/exports.h"
#include "mpi/guard.h"
#include "mpi/job.h"
#include "mpi/serve.h"

namespace hetccl::mpi {
namespace {

Function init("PMPI_Init"), init_thread("PMPI_Init_thread");

int after_init(int code) {
  return guarded([&] {
    Library* library = Library::get();
    if (code == 0 && library != nullptr && Job::get() == nullptr) Job::start(*library);
    return code;
  });
}

}  // namespace

HETCCL_MPI_EXPORT MPI_Init(Word argc, Word argv) {
  return after_init(init.call(Words(argc, argv)));
}

HETCCL_MPI_EXPORT MPI_Init_thread(Word argc, Word argv, Word required, Word provided) {
  return after_init(init_thread.call(Words(argc, argv, required, provided)));
}

#define HETCCL_MPI_FORM(function, collective, form, n)                                  \
  HETCCL_MPI_EXPORT function(HETCCL_WORDS_##n) {                                        \
    return serve({Collective::collective, Form::form, false, Words(HETCCL_NAMES_##n)}); \
  }                                                                                     \
  HETCCL_MPI_EXPORT function##_c(HETCCL_WORDS_##n) {                                    \
    return serve({Collective::collective, Form::form, true, Words(HETCCL_NAMES_##n)});  \
  }

// Exports a collective with `n` arguments. Its nonblocking form adds a request; its persistent form
// an info and a request.
#define HETCCL_MPI_COLLECTIVE(name, lower, collective, n, n_nonblocking, n_persistent) \
  HETCCL_MPI_FORM(MPI_##name, collective, Blocking, n)                                 \
  HETCCL_MPI_FORM(MPI_I##lower, collective, Nonblocking, n_nonblocking)                \
  HETCCL_MPI_FORM(MPI_##name##_init, collective, Persistent, n_persistent)

HETCCL_MPI_COLLECTIVE(Allreduce, allreduce, Allreduce, 6, 7, 8)
HETCCL_MPI_COLLECTIVE(Reduce, reduce, Reduce, 7, 8, 9)
HETCCL_MPI_COLLECTIVE(Bcast, bcast, Bcast, 5, 6, 7)
HETCCL_MPI_COLLECTIVE(Allgather, allgather, Allgather, 7, 8, 9)
HETCCL_MPI_COLLECTIVE(Allgatherv, allgatherv, Allgatherv, 8, 9, 10)
HETCCL_MPI_COLLECTIVE(Reduce_scatter, reduce_scatter, ReduceScatter, 6, 7, 8)
HETCCL_MPI_COLLECTIVE(Reduce_scatter_block, reduce_scatter_block, ReduceScatterBlock, 6, 7, 8)
HETCCL_MPI_COLLECTIVE(Alltoall, alltoall, Alltoall, 7, 8, 9)
HETCCL_MPI_COLLECTIVE(Alltoallv, alltoallv, Alltoallv, 9, 10, 11)
HETCCL_MPI_COLLECTIVE(Gather, gather, Gather, 8, 9, 10)
HETCCL_MPI_COLLECTIVE(Gatherv, gatherv, Gatherv, 9, 10, 11)
HETCCL_MPI_COLLECTIVE(Scatter, scatter, Scatter, 8, 9, 10)
HETCCL_MPI_COLLECTIVE(Scatterv, scatterv, Scatterv, 9, 10, 11)
HETCCL_MPI_COLLECTIVE(Barrier, barrier, Barrier, 1, 2, 3)

}  // namespace hetccl::mpi
