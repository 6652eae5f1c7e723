/* Identifies the MPI job of this process before MPI_Init, from its launcher. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* FNV-1a. */
static uint64_t hash_of(const char* text, uint64_t before) {
  uint64_t hash = before != 0 ? before : 14695981039346656037ULL;
  for (; *text != 0; ++text) hash = (hash ^ (unsigned char)*text) * 1099511628211ULL;
  return hash;
}

/* Reads the start of a file in /proc and appends a 0; returns its length. */
static size_t read_process(int pid, const char* name, char* text, size_t room) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  FILE* file = fopen(path, "re");
  if (file == NULL) return 0;
  const size_t length = fread(text, 1, room - 1, file);
  fclose(file);
  text[length] = 0;
  return length;
}

/* Returns 0 if unknown. */
static int parent_of(int pid) {
  char text[512];
  int parent = 0;
  if (read_process(pid, "stat", text, sizeof text) == 0) return 0;
  const char* after_name = strrchr(text, ')');
  if (after_name == NULL || sscanf(after_name + 1, " %*c %d", &parent) != 1) return 0;
  return parent;
}

/* Hydra, which starts MPICH's jobs, sets no variable that identifies the job. Its proxy on each
 * host is an ancestor of the ranks, and the proxy's arguments contain the address of the job's
 * mpiexec. */
static uint64_t job_of_hydra(void) {
  static const char kProxy[] = "hydra_pmi_proxy", kOption[] = "--control-port";
  char text[4096];
  if (getenv("PMI_FD") == NULL && getenv("PMI_PORT") == NULL) return 0;
  for (int pid = getppid(); pid > 1; pid = parent_of(pid)) {
    const size_t length = read_process(pid, "cmdline", text, sizeof text);
    if (length == 0 || strstr(text, kProxy) == NULL) continue;
    for (const char* at = text; at + sizeof kOption < text + length; at += strlen(at) + 1)
      if (strcmp(at, kOption) == 0) return hash_of(at + sizeof kOption, 0);
  }
  return 0;
}

/* Returns 0 unless all of these are set. */
static uint64_t job_of_variables(const char* name, const char* more) {
  const char* value = getenv(name);
  const char* second = more != NULL ? getenv(more) : "";
  if (value == NULL || second == NULL || *value == 0) return 0;
  return hash_of(second, hash_of(".", hash_of(value, 0)));
}

/* Returns a number that is the same on all ranks of an MPI job, on any host, and different for each
 * job; 0 if there is no evidence. The launcher that started this process itself comes first,
 * because the variables of others may be inherited. */
static uint64_t find_job(void) {
  uint64_t job = job_of_variables("I_MPI_HYDRA_UUID", NULL);
  if (job == 0) job = job_of_hydra();
  if (job == 0) job = job_of_variables("PMIX_NAMESPACE", NULL);
  if (job == 0) job = job_of_variables("OMPI_MCA_ess_base_jobid", NULL);
  if (job == 0) job = job_of_variables("SLURM_JOB_ID", "SLURM_STEP_ID");
  return job;
}
