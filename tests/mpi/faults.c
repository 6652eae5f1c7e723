/* An MPI program in which something goes wrong: faults FAULT PREFIX. Each rank writes its error to a
 * file PREFIX.RANK, as a program can that has set MPI_ERRORS_RETURN: a launcher may lose what ranks
 * print while one dies. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 20000 };
static const char kPattern[] = "this is the secret payload of a model, sixty-four bytes of it..";
static int rank, size;
static const char* prefix;

static char* path_of(int other) {
  static char path[4096];
  snprintf(path, sizeof path, "%s.%d", prefix, other);
  return path;
}

/* Waits for another rank's report, of which only a hang makes an end. */
static void wait_for_report(int other) {
  for (int i = 0; i < 12000 && access(path_of(other), F_OK) != 0; ++i) usleep(10000);
}

/* Ends this rank alone, once the first `reporters` ranks have reported: a launcher ends the others
 * with it. */
static void report(int code, int reporters) {
  char text[MPI_MAX_ERROR_STRING] = "no error";
  int length = 0;
  if (code != MPI_SUCCESS) MPI_Error_string(code, text, &length);
  /* Whole or not at all: the launcher may kill this rank at any time. */
  char part[4096 + 8];
  snprintf(part, sizeof part, "%s.part", path_of(rank));
  FILE* file = fopen(part, "w");
  if (file != NULL) fprintf(file, "%s\n", text), fclose(file), rename(part, path_of(rank));
  for (int other = 0; other < reporters; ++other) wait_for_report(other);
  _exit(code == MPI_SUCCESS ? 0 : 7);
}

static void die(void) {
  if (rank != size - 1) return;
  usleep(500000);
  raise(SIGKILL);
}

/* The text of an error that is one; other codes end the job. */
static const char* text_of(int code, const char* where) {
  static char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (code == MPI_SUCCESS) printf("rank %d: %s: success\n", rank, where), fflush(stdout), _exit(8);
  MPI_Error_string(code, text, &length);
  return text;
}

static void need(int good, const char* what) {
  if (good) return;
  printf("rank %d: %s\n", rank, what), fflush(stdout);
  _exit(8);
}

/* One of several requests fails: only that request has the error. */
static void mix_requests(int* a, int* b) {
  enum { kBad, kGood, kRequests };
  MPI_Request requests[kRequests], late;
  MPI_Status statuses[kRequests];
  int flag = 0, token = 0, index = -1;
  for (int form = 0; form < 4; ++form) {
    MPI_Comm comms[kRequests];
    for (int i = 0; i < kRequests; ++i) {
      MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
      MPI_Comm_set_errhandler(comms[i], MPI_ERRORS_RETURN);
      MPI_Allreduce(a, b, N, MPI_INT, MPI_SUM, comms[i]);
    }
    const int n = rank == 0 ? N : N - 1;
    int code = MPI_Irecv(&token, 1, MPI_INT, rank, form, MPI_COMM_WORLD, &late);
    need(code == MPI_SUCCESS, "MPI_Irecv fails");
    MPI_Iallreduce(a, b, n, MPI_INT, MPI_SUM, comms[kBad], &requests[kBad]);
    MPI_Iallreduce(a, b + N, N, MPI_INT, MPI_SUM, comms[kGood], &requests[kGood]);
    /* Until the error is known here: no other request has it, and to ask does not take it. */
    do {
      need(MPI_Test(&late, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS, "MPI_Test of another fails");
      code = MPI_Request_get_status(requests[kBad], &flag, MPI_STATUS_IGNORE);
    } while (!flag);
    need(strstr(text_of(code, "get_status"), "where ranks") != NULL, "get_status: another error");
    MPI_Send(&token, 1, MPI_INT, rank, form, MPI_COMM_WORLD);
    need(MPI_Wait(&late, MPI_STATUS_IGNORE) == MPI_SUCCESS, "MPI_Wait of another fails");
    if (form == 0) {
      code = MPI_Wait(&requests[kBad], MPI_STATUS_IGNORE);
      need(MPI_Wait(&requests[kGood], MPI_STATUS_IGNORE) == MPI_SUCCESS, "MPI_Wait: good fails");
    } else if (form == 1) {
      code = MPI_Waitall(kRequests, requests, statuses);
      need(code == MPI_ERR_IN_STATUS, "MPI_Waitall: not MPI_ERR_IN_STATUS");
      need(statuses[kGood].MPI_ERROR == MPI_SUCCESS, "MPI_Waitall: good fails");
      code = statuses[kBad].MPI_ERROR;
    } else if (form == 2) {
      while (requests[kBad] != MPI_REQUEST_NULL) {
        const int one = MPI_Waitany(kRequests, requests, &index, MPI_STATUS_IGNORE);
        if (index == kBad) code = one;
        need(index == kBad || one == MPI_SUCCESS, "MPI_Waitany: good fails");
      }
      need(MPI_Wait(&requests[kGood], MPI_STATUS_IGNORE) == MPI_SUCCESS, "MPI_Wait: good fails");
    } else {
      code = MPI_SUCCESS;
      for (int left = kRequests; left > 0;) {
        int count = 0, indices[kRequests];
        const int some = MPI_Testsome(kRequests, requests, &count, indices, statuses);
        for (int i = 0; i < count; ++i, --left) {
          const int one = some == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR;
          need(some == MPI_SUCCESS || some == MPI_ERR_IN_STATUS, "MPI_Testsome: another code");
          if (indices[i] == kBad) code = one;
          need(indices[i] == kBad || one == MPI_SUCCESS, "MPI_Testsome: good fails");
        }
      }
    }
    need(strstr(text_of(code, "the request"), "where ranks") != NULL, "another error");
  }
  printf("rank %d: told apart\n", rank);
  fflush(stdout);
}

int main(int argc, char** argv) {
  static int a[2 * N], b[2 * N];
  const char* what = argc > 1 ? argv[1] : "";
  prefix = argc > 2 ? argv[2] : "error";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int code = MPI_Allreduce(a, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (code != MPI_SUCCESS) report(code, size);
  if (strcmp(what, "lost") == 0) {
    die();
    report(MPI_Allreduce(a, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD), size - 1);
  } else if (strcmp(what, "lost-request") == 0) {
    MPI_Request request;
    die();
    code = MPI_Iallreduce(a, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    report(code, size - 1);
  } else if (strcmp(what, "counts") == 0) {
    report(MPI_Allreduce(a, b, rank == 0 ? N : N - 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), size);
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
    report(code, size);
  } else if (strcmp(what, "mixed") == 0) {
    mix_requests(a, b);
  } else if (strcmp(what, "pattern") == 0) {
    for (int bytes = 8192; bytes <= 1 << 18; bytes <<= 5) {
      char* text = calloc(1, bytes);
      for (int i = 0; rank == 0 && i < bytes; ++i) text[i] = kPattern[i % (sizeof kPattern - 1)];
      code = MPI_Bcast(text, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
      if (code != MPI_SUCCESS || memcmp(text, kPattern, sizeof kPattern - 1) != 0) report(code, 0);
      free(text);
    }
    if (rank == 0) printf("ok\n");
  } else if (strcmp(what, "negative") == 0) {
    int class;
    code = MPI_Allreduce(a, b, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Error_class(code, &class);
    if (class != MPI_ERR_COUNT) report(code, size);
    code = MPI_Allreduce(NULL, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    const int first = code;
    for (int i = 0; i < 5000; ++i)
      code = MPI_Allreduce(NULL, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    /* In the report: what is printed here a launcher may lose when another rank ends. */
    report(code == first ? code : MPI_ERR_INTERN, size);
  } else if (strcmp(what, "late") == 0) {
    for (int other = 1; rank == 0 && other < size; ++other) wait_for_report(other);
    report(MPI_Allreduce(a, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD), size);
  } else {
    if (rank == 0) printf("ok\n");
  }
  MPI_Finalize();
  return 0;
}
