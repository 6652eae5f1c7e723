/* A training loop of your own in C: gradient descent on a line, y = 3 x - 1, from data that the
 * ranks share. Every rank prints the same bits.
 *
 *     LIB="$(dirname "$(hetccl mpi-lib)")"
 *     cc examples/own_loop.c -I"$(hetccl --include-dir)" -L"$LIB" -Wl,-rpath,"$LIB" -lhetccl
 *     torchrun --nproc-per-node 4 --no-python ./a.out id
 *
 * The ranks meet by the file `id`, which all must see. MPI_Bcast or a socket does as well. */
#include <fcntl.h>
#include <hetccl/hetccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHECK(call)                                                                         \
  do {                                                                                      \
    hetcclResult_t result_ = (call);                                                        \
    if (result_ != hetcclSuccess) {                                                         \
      fprintf(stderr, "%s: %s\n", hetcclGetErrorString(result_), hetcclGetLastError(NULL)); \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

/* Makes the id on rank 0, and reads it on the others. It holds a secret: mode 0600. */
static hetcclUniqueId share_id(const char* path, int rank) {
  hetcclUniqueId id;
  char draft[4096];
  snprintf(draft, sizeof draft, "%s.new", path);
  if (rank == 0) {
    CHECK(hetcclGetUniqueId(&id));
    int file = open(draft, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (file < 0 || write(file, &id, sizeof id) != sizeof id || rename(draft, path) != 0) {
      perror(path);
      exit(1);
    }
    close(file);
    return id;
  }
  for (int tries = 0; tries < 600; ++tries, usleep(100000)) { /* a minute */
    int file = open(path, O_RDONLY | O_NOFOLLOW);
    if (file < 0) continue;
    if (read(file, &id, sizeof id) == sizeof id) return id;
    close(file);
  }
  fprintf(stderr, "rank %d: rank 0 has written no id to %s\n", rank, path);
  exit(1);
}

int main(int argc, char** argv) {
  const char *rank_text = getenv("RANK"), *size_text = getenv("WORLD_SIZE");
  if (argc != 2 || rank_text == NULL || size_text == NULL) {
    fprintf(stderr, "usage: RANK=0 WORLD_SIZE=2 %s FILE, on each rank\n", argv[0]);
    return 2;
  }
  int rank = atoi(rank_text), size = atoi(size_text);
  hetcclComm_t comm;
  CHECK(hetcclCommInitRank(&comm, size, share_id(argv[1], rank), rank));
  if (rank == 0) unlink(argv[1]); /* every rank has read it */
  double line[2] = {0, 0};        /* slope and offset */
  for (int step = 0; step < 20; ++step) {
    double gradient[2] = {0, 0};
    for (int i = rank; i < 100; i += size) { /* this rank's part of 100 points */
      double x = i / 50.0 - 1, error = line[0] * x + line[1] - (3 * x - 1);
      gradient[0] += 2 * error * x / 100;
      gradient[1] += 2 * error / 100;
    }
    CHECK(hetcclAllReduce(gradient, gradient, 2, hetcclFloat64, hetcclSum, comm, NULL));
    for (int i = 0; i < 2; ++i) line[i] -= 0.3 * gradient[i];
  }
  printf("rank %d of %d: y = %.17g x %+.17g\n", rank, size, line[0], line[1]);
  CHECK(hetcclCommDestroy(comm));
  return 0;
}
