/* An MPI program in which something goes wrong: faults FAULT [PREFIX]. Each
 * rank prints its error, as a program does that has set MPI_ERRORS_RETURN, and with PREFIX writes it
 * to a file PREFIX.RANK: a launcher may lose what ranks print while one dies. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 20000 };
static int rank, size;
static const char* prefix;

/* Ends this rank alone: others may have to report, too. */
static void report(int code) {
  char text[MPI_MAX_ERROR_STRING] = "no error";
  int length = 0;
  if (code != MPI_SUCCESS) MPI_Error_string(code, text, &length);
  if (prefix != NULL) {
    /* Whole or not at all: the launcher may kill this rank at any time. */
    char path[4096], part[4096 + 8];
    snprintf(path, sizeof path, "%s.%d", prefix, rank);
    snprintf(part, sizeof part, "%s.part", path);
    FILE* file = fopen(part, "w");
    if (file != NULL) fprintf(file, "%s\n", text), fclose(file), rename(part, path);
  }
  printf("rank %d: %s\n", rank, text);
  fflush(stdout);
  usleep(1500000);
  _exit(code == MPI_SUCCESS ? 0 : 7);
}

static void die(void) {
  if (rank != size - 1) return;
  usleep(500000);
  raise(SIGKILL);
}

int main(int argc, char** argv) {
  static int a[2 * N], b[2 * N];
  const char* what = argc > 1 ? argv[1] : "";
  prefix = argc > 2 ? argv[2] : NULL;
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
  } else if (strcmp(what, "counts-request") == 0 || strcmp(what, "counts-persistent") == 0) {
    /* On a communicator with an error handler of its own: MPI_COMM_WORLD's would end the job. */
    MPI_Comm own;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
    MPI_Allreduce(a, b, N, MPI_INT, MPI_SUM, own);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    const int n = rank == 0 ? N : N - 1;
    if (strcmp(what, "counts-request") == 0) {
      code = MPI_Iallreduce(a, b, n, MPI_INT, MPI_SUM, own, &request);
    } else {
#if MPI_VERSION >= 4 || OMPI_MAJOR_VERSION >= 5
      code = MPI_Allreduce_init(a, b, n, MPI_INT, MPI_SUM, own, MPI_INFO_NULL, &request);
      if (code == MPI_SUCCESS) code = MPI_Start(&request);
#endif
    }
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    report(code);
  } else if (strcmp(what, "negative") == 0) {
    int class;
    code = MPI_Allreduce(a, b, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Error_class(code, &class);
    if (class != MPI_ERR_COUNT) report(code);
    code = MPI_Allreduce(NULL, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    const int first = code;
    for (int i = 0; i < 5000; ++i) code = MPI_Allreduce(NULL, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%s codes\n", code == first ? "equal" : "unlike");
    report(code);
  } else if (strcmp(what, "late") == 0) {
    if (rank == 0) sleep(3);
    report(MPI_Allreduce(a, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  } else {
    if (rank == 0) printf("ok\n");
  }
  MPI_Finalize();
  return 0;
}
