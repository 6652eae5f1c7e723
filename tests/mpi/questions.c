/* Asks whether device memory is taken, before MPI_Init and after MPI_Finalize too: of the functions
 * that the process has, as programs look for them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static void ask(const char* when) {
  const char* names[] = {"MPIX_Query_cuda_support", "MPIX_Query_rocm_support",
                         "MPIX_Query_hip_support"};
  for (int i = 0; i < 3; ++i) {
    int (*question)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, names[i]);
    if (question != NULL) printf("%s %s: %d\n", when, names[i], question());
  }
}

int main(int argc, char** argv) {
  ask("before");
  MPI_Init(&argc, &argv);
  ask("between");
  MPI_Finalize();
  ask("after");
  printf("ok\n");
  return 0;
}
