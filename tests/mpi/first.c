/* Two threads make their first calls on a communicator at the same time: this program's PMPI
 * function holds both in what the library does for a new communicator. One rank. Link with
 * -rdynamic. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

static MPI_Comm comm;
static pthread_barrier_t both;
static int meets, bad;

int PMPI_Comm_test_inter(MPI_Comm asked, int* flag) {
  *flag = 0;
  if (meets && asked == comm) pthread_barrier_wait(&both);
  return MPI_SUCCESS;
}

static void* call(void* unused) {
  int in = 3, out = 0;
  (void)unused;
  MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm);
  if (out != in) __atomic_store_n(&bad, 1, __ATOMIC_RELAXED);
  return NULL;
}

int main(int argc, char** argv) {
  int level = 0;
  pthread_t other;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  if (level != MPI_THREAD_MULTIPLE) return 2;
  MPI_Comm_dup(MPI_COMM_SELF, &comm);
  pthread_barrier_init(&both, NULL, 2);
  meets = 1;
  pthread_create(&other, NULL, call, NULL);
  call(NULL);
  pthread_join(other, NULL);
  meets = 0;
  call(NULL);
  printf(bad ? "wrong\n" : "ok\n");
  MPI_Finalize();
  return bad;
}
