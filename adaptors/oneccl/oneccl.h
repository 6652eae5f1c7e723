/* The part of Intel oneCCL's C API that the adaptor calls, loaded at run time, with oneCCL's
 * numbers for types and operators. The declarations are those of oneapi/ccl.h in oneCCL 2022.2.
 * Only one file may include this, since it holds the library's state. */
#pragma once

#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "hetccl/adaptor.h"

typedef struct {
  char text[4096];
} UniqueId;
typedef void* Comm;
typedef void* Stream; /* NULL: the host's */
enum { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBfloat16 };
enum { kSum, kProd, kMax, kMin };

static struct {
  int (*get_version)(int* version);
  int (*get_unique_id)(UniqueId* id);
  const char* (*error_string)(int code);
  int (*init_rank)(Comm* comm, size_t n_ranks, UniqueId id, int rank);
  int (*all_reduce)(void* send, void* recv, size_t n, int type, int op, Comm, Stream);
  int (*reduce)(const void* send, void* recv, size_t n, int type, int op, int root, Comm, Stream);
  int (*broadcast)(const void* send, void* recv, size_t n, int type, int root, Comm, Stream);
  int (*send)(const void* data, size_t n, int type, int peer, Comm, Stream);
  int (*receive)(void* data, size_t n, int type, int peer, Comm, Stream);
  int (*all_to_all)(const void* send, const size_t* n_send, void* recv, const size_t* n_recv,
                    int type, Comm, Stream);
} ccl;

static struct {
  char version[64];
  char why_not[512]; /* why it cannot be used; empty if it can */
} found = {.version = "not loaded"};

/* oneCCL's leader listens on the first interface other than the loopback, which may not exist. */
static int has_only_loopback(void) {
  struct ifaddrs* all = NULL;
  int only = 1;
  if (getifaddrs(&all) != 0) return 0;
  for (const struct ifaddrs* one = all; one != NULL; one = one->ifa_next) {
    const int is_up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (is_up && one->ifa_addr != NULL && one->ifa_addr->sa_family == AF_INET) only = 0;
  }
  freeifaddrs(all);
  return only;
}

/* CCL_WORKER_OFFLOAD: without it, concurrent calls of two communicators fail. CCL_YIELD: waiting
 * ranks leave their cores to others. Keeps values that the user has set. */
static void set_environment(void) {
  static const char* const kDefaults[][2] = {{"CCL_PLUGIN", "ONECCL_LEGACY_CPU"},
                                             {"CCL_ATL_TRANSPORT", "ofi"},
                                             {"CCL_WORKER_OFFLOAD", "1"},
                                             {"CCL_YIELD", "sched_yield"},
                                             {"CCL_LOG_LEVEL", "error"}};
  for (size_t i = 0; i < sizeof kDefaults / sizeof *kDefaults; ++i)
    setenv(kDefaults[i][0], kDefaults[i][1], 0);
  if (has_only_loopback()) setenv("CCL_KVS_IFACE", "lo", 0);
}

/* Returns "", or the reason for a failure. */
static const char* find_calls(void* library) {
  const struct {
    void* call;
    const char* name;
  } wanted[] = {{&ccl.get_version, "onecclGetVersion"},
                {&ccl.get_unique_id, "onecclGetUniqueId"},
                {&ccl.error_string, "onecclGetErrorString"},
                {&ccl.init_rank, "onecclCommInitRank"},
                {&ccl.all_reduce, "onecclAllReduce"},
                {&ccl.reduce, "onecclReduce"},
                {&ccl.broadcast, "onecclBroadcast"},
                {&ccl.send, "onecclSend"},
                {&ccl.receive, "onecclRecv"},
                {&ccl.all_to_all, "onecclAllToAllV"}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i) {
    void* call = dlsym(library, wanted[i].name);
    if (call == NULL) return dlerror();
    memcpy(wanted[i].call, &call, sizeof call);
  }
  return "";
}

/* Returns "", or the reason for a failure. */
static const char* try_to_load(void) {
  const char* path = getenv("ONECCL_LIBRARY");
  int number = 0;
  set_environment();
  void* library = dlopen(path != NULL ? path : "libccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return dlerror();
  const char* reason = find_calls(library);
  if (*reason != 0) return reason;
  const int code = ccl.get_version(&number); /* loads the part that serves CPUs */
  if (code != 0) return ccl.error_string(code);
  snprintf(found.version, sizeof found.version, "%d.%d.%d", number / 10000, number / 100 % 100,
           number % 100);
  if (getenv("CCL_OFI_LIBRARY_PATH") == NULL && dlopen("libfabric.so.1", RTLD_LAZY) == NULL)
    return dlerror();
  return "";
}

static void load_once(void) {
  snprintf(found.why_not, sizeof found.why_not, "%s", try_to_load());
}

static void load_oneccl(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load_once);
}

/* Bytes of an element of `work`. */
static size_t size_of(const hetcclLibraryWork* work) {
  const size_t end = offsetof(hetcclLibraryWork, element_bytes) + sizeof work->element_bytes;
  switch (work->type) {
    case hetcclInt64:
    case hetcclUint64:
    case hetcclFloat64:
      return 8;
    case hetcclInt32:
    case hetcclUint32:
    case hetcclFloat32:
      return 4;
    case hetcclInt16:
    case hetcclUint16:
    case hetcclFloat16:
    case hetcclBfloat16:
      return 2;
    case hetcclInt8:
    case hetcclUint8:
    case hetcclFloat8e4m3:
    case hetcclFloat8e5m2:
      return 1;
  }
  return work->size >= end && work->element_bytes > 0 ? work->element_bytes : 1;
}

/* Returns -1 if oneCCL cannot reduce the type. */
static int type_of(hetcclDataType_t type) {
  switch (type) {
    case hetcclInt8:
      return kInt8;
    case hetcclUint8:
      return kUint8;
    case hetcclInt32:
      return kInt32;
    case hetcclUint32:
      return kUint32;
    case hetcclInt64:
      return kInt64;
    case hetcclUint64:
      return kUint64;
    case hetcclFloat16:
      return kFloat16;
    case hetcclBfloat16:
      return kBfloat16;
    case hetcclFloat32:
      return kFloat32;
    case hetcclFloat64:
      return kFloat64;
    default:
      return -1;
  }
}

static int op_of(hetcclRedOp_t op) {
  switch (op) {
    case hetcclSum:
      return kSum;
    case hetcclProd:
      return kProd;
    case hetcclMax:
      return kMax;
    case hetcclMin:
      return kMin;
    default:
      return -1;
  }
}
