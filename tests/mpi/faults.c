/* An MPI program in which something goes wrong: faults lost|counts|late. Prints each rank's error, as
 * a program does that has set MPI_ERRORS_RETURN. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 20000 };
static int rank, size;

/* Ends this rank alone: others may have to report, too. */
static void report(int code) {
  char text[MPI_MAX_ERROR_STRING] = "no error";
  int length = 0;
  if (code != MPI_SUCCESS) MPI_Error_string(code, text, &length);
  printf("rank %d: %s\n", rank, text);
  fflush(stdout);
  usleep(1500000);
  _exit(code == MPI_SUCCESS ? 0 : 7);
}

/* MPICH's launcher ends the job when a rank dies that it has an answer for. */
static void die(void) {
  if (rank != size - 1) return;
  usleep(500000);
  raise(SIGKILL);
}

int main(int argc, char** argv) {
  static int a[2 * N], b[2 * N];
  const char* what = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int code = MPI_Allreduce(a, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (code != MPI_SUCCESS) report(code);
  if (strcmp(what, "lost") == 0) {
    die();
    report(MPI_Allreduce(a, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  } else if (strcmp(what, "lost-request") == 0) {
    MPI_Request request;
    die();
    code = MPI_Iallreduce(a, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    report(code);
  } else if (strcmp(what, "counts") == 0) {
    report(MPI_Allreduce(a, b, rank == 0 ? N : N - 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  } else if (strcmp(what, "late") == 0) {
    if (rank == 0) sleep(3);
    report(MPI_Allreduce(a, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  } else {
    if (rank == 0) printf("ok\n");
  }
  MPI_Finalize();
  return 0;
}
