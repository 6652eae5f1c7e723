/* An MPI program of several threads, each of which makes collectives on a communicator of its own:
 * threads [ROUNDS]. Prints "ok" on rank 0, or ends with the first value that is wrong. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, N = 3000 };
static int rank, size, rounds = 40;
static MPI_Comm comms[THREADS];

static int value(int thread, int round, int r, int i) {
  return thread * 100003 + round * 1009 + r * 31 + i;
}

static void check(const char* what, int got, int wanted) {
  if (got == wanted) return;
  fprintf(stderr, "rank %d: %s: %d and not %d\n", rank, what, got, wanted);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void* work(void* at) {
  const int thread = (int)(long)at;
  const MPI_Comm comm = comms[thread];
  int *a = malloc(sizeof(int) * N), *b = malloc(sizeof(int) * N), *c = malloc(sizeof(int) * N);
  for (int round = 0; round < rounds; ++round) {
    const int n = 1 + (round * 977 + thread * 131) % N, root = round % size;
    const int next = (rank + 1) % size, last = (rank + size - 1) % size;
    MPI_Request requests[3];
    int token = value(thread, round, rank, 0), got = -1;
    for (int i = 0; i < n; ++i) a[i] = value(thread, round, rank, i), c[i] = a[i];
    MPI_Allreduce(a, b, n, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < n; ++i) {
      int sum = 0;
      for (int r = 0; r < size; ++r) sum += value(thread, round, r, i);
      check("allreduce", b[i], sum);
      b[i] = -1;
    }
    MPI_Iallreduce(a, b, n, MPI_INT, MPI_MAX, comm, &requests[0]);
    MPI_Irecv(&got, 1, MPI_INT, last, thread, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&token, 1, MPI_INT, next, thread, MPI_COMM_WORLD, &requests[2]);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    check("iallreduce", b[n - 1], value(thread, round, size - 1, n - 1));
    check("a message", got, value(thread, round, last, 0));
    MPI_Bcast(c, n, MPI_INT, root, comm);
    check("bcast", c[n - 1], value(thread, round, root, n - 1));
  }
  free(a), free(b), free(c);
  return NULL;
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  check("MPI_THREAD_MULTIPLE", provided, MPI_THREAD_MULTIPLE);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1) rounds = atoi(argv[1]);
  pthread_t threads[THREADS];
  for (int t = 0; t < THREADS; ++t) MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
  for (long t = 0; t < THREADS; ++t) pthread_create(&threads[t], NULL, work, (void*)t);
  for (int t = 0; t < THREADS; ++t) pthread_join(threads[t], NULL);
  for (int t = 0; t < THREADS; ++t) MPI_Comm_free(&comms[t]);
  if (rank == 0) printf("ok\n");
  MPI_Finalize();
  return 0;
}
