/* Collectives of a cluster by Intel oneCCL, for hetccl: host memory, by oneCCL's C API on CPUs.
 *
 * It loads libccl.so.2 at run time, from the path in ONECCL_LIBRARY or by its name, so it builds
 * without oneCCL.
 *
 * A call of oneCCL blocks and cannot be aborted: it spins for ever once a peer is dead. So each
 * communicator has a thread (`serve`) that makes all its calls, in the order of `start`. The thread
 * accesses only the adaptor's memory: `start` copies inputs into it, `test` copies results out. If
 * a call is pending, `destroy` leaks the thread and all memory that it may still write. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "hetccl/adaptor.h"
#include "keys.h"
#include "oneccl.h"

enum {
  kNoMemory = 1000,
  kTimeout,
  kForeign,
  kLongId,
  kSameProcess,
  kNoThread,
  kNoNonce,
  kUnknownCall
};
static const char kMagic[8] = "oneccl1";

/* The id by which the ranks of a cluster meet. */
typedef struct {
  char text[HETCCL_ADAPTOR_ID_BYTES - 24]; /* oneCCL's id: the leader's address and port */
  char magic[8];
  char nonce[16]; /* a later leader may have the same address and port */
} Id;
_Static_assert(sizeof(Id) == HETCCL_ADAPTOR_ID_BYTES, "an id has these bytes");

static const char* error_text(int code) {
  static _Thread_local char text[128];
  switch (code) {
    case kNoMemory:
      return "out of memory";
    case kTimeout:
      return "the other ranks did not come in time";
    case kForeign:
      return "this id is not the adaptor's";
    case kLongId:
      return "oneCCL's id is longer than hetccl's";
    case kSameProcess:
      return "two ranks of a cluster are in one process, which oneCCL does not support";
    case kNoThread:
      return "no thread can be started";
    case kNoNonce:
      return "the system gives no random bytes";
    case kUnknownCall:
      return "the adaptor does not know this call";
    default:
      if (ccl.error_string == NULL) return NULL;
      snprintf(text, sizeof text, "oneCCL's error %d: %s; it has printed the cause", code,
               ccl.error_string(code));
      return text;
  }
}

static int score(void) {
  if (*found.why_not == 0) return 2 * HETCCL_OWN_SCORE;
  fprintf(stderr, "hetccl: the adaptor by oneCCL cannot serve this process: %s\n", found.why_not);
  return 0;
}

static int reduces(hetcclDataType_t type, hetcclRedOp_t op) {
  return type_of(type) >= 0 && op_of(op) >= 0;
}

/* --- calls on a communicator's thread */

typedef enum { kKeep, kReduceAll, kReduceTo, kBroadcastFrom, kSendTo, kReceiveFrom } Action;

/* A call of oneCCL for one piece, in place. */
typedef struct {
  Action action;
  int peer; /* or root */
  char* memory;
  size_t n; /* elements in a reduction, else bytes */
} Step;

/* All messages of a rank, in one call of oneCCL. */
typedef struct {
  char *sent, *received;
  size_t *n_sent, *n_received; /* bytes, by peer */
} Exchange;

/* A result that `test` copies to the caller's buffer. */
typedef struct {
  char* to;
  const char* from;
  size_t n; /* elements */
} Result;

typedef struct Call {
  struct Call* next;
  int done, code; /* guarded by the cluster's mutex */
  size_t size;    /* of an element of the caller's */
  int type, op;   /* oneCCL's, for reductions */
  KeyForm form;
  Step* steps;
  Result* results;
  size_t n_steps, n_results;
  Exchange* exchange; /* or NULL */
} Call;

typedef struct {
  pthread_mutex_t mutex; /* guards the members below, up to `calls` */
  pthread_cond_t changed;
  int ready, code; /* results of the init */
  int ended;
  Call* calls; /* started, and not yet tested to completion */
  Comm comm;   /* used by the thread */
  UniqueId id;
  int rank, n_ranks;
  pthread_t thread;
} Cluster;

static int make_step(const Cluster* cluster, const Call* call, const Step* step) {
  char* memory = step->memory;
  switch (step->action) {
    case kKeep:
      return 0;
    case kReduceAll:
      return ccl.all_reduce(memory, memory, step->n, call->type, call->op, cluster->comm, NULL);
    case kReduceTo:
      return ccl.reduce(memory, memory, step->n, call->type, call->op, step->peer, cluster->comm,
                        NULL);
    case kBroadcastFrom:
      return ccl.broadcast(memory, memory, step->n, kInt8, step->peer, cluster->comm, NULL);
    case kSendTo:
      return ccl.send(memory, step->n, kInt8, step->peer, cluster->comm, NULL);
    case kReceiveFrom:
      return ccl.receive(memory, step->n, kInt8, step->peer, cluster->comm, NULL);
  }
  return kUnknownCall;
}

static int make_call(const Cluster* cluster, const Call* call) {
  const Exchange* all = call->exchange;
  int code = 0;
  for (size_t i = 0; i < call->n_steps && code == 0; ++i)
    code = make_step(cluster, call, &call->steps[i]);
  if (all != NULL && code == 0)
    code = ccl.all_to_all(all->sent, all->n_sent, all->received, all->n_received, kInt8,
                          cluster->comm, NULL);
  return code;
}

/* Requires the mutex. */
static Call* next_call(const Cluster* cluster) {
  Call* call = cluster->calls;
  while (call != NULL && call->done) call = call->next;
  return call;
}

/* Runs on a communicator's thread. */
static void* serve(void* argument) {
  Cluster* cluster = argument;
  const int code =
      ccl.init_rank(&cluster->comm, (size_t)cluster->n_ranks, cluster->id, cluster->rank);
  pthread_mutex_lock(&cluster->mutex);
  cluster->ready = 1;
  cluster->code = code;
  pthread_cond_broadcast(&cluster->changed);
  while (!cluster->ended) {
    Call* call = next_call(cluster);
    if (call == NULL) {
      pthread_cond_wait(&cluster->changed, &cluster->mutex);
      continue;
    }
    pthread_mutex_unlock(&cluster->mutex);
    const int outcome = make_call(cluster, call);
    pthread_mutex_lock(&cluster->mutex);
    call->code = outcome;
    call->done = 1;
  }
  pthread_mutex_unlock(&cluster->mutex);
  return NULL;
}

/* --- clusters */

/* Starts a thread that blocks signals, so that a write to a dead leader does not end the process by
 * SIGPIPE. Threads that oneCCL starts inherit this. */
static int start_thread(pthread_t* thread, void* (*body)(void*), void* argument) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(thread, NULL, body, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed ? kNoThread : 0;
}

typedef struct {
  UniqueId id;
  int code;
} Making;

static void* ask_for_id(void* argument) {
  Making* making = argument;
  making->code = ccl.get_unique_id(&making->id);
  return NULL;
}

/* oneCCL's id is a short text, for example "192.0.2.2_4096". */
static int make_id(int n_ranks, void* out) {
  Making making = {0};
  Id id = {0};
  pthread_t thread;
  (void)n_ranks;
  const int failed = start_thread(&thread, ask_for_id, &making);
  if (failed) return failed;
  pthread_join(thread, NULL);
  if (making.code != 0) return making.code;
  for (size_t i = sizeof id.text - 1; i < sizeof making.id.text; ++i)
    if (making.id.text[i] != 0) return kLongId;
  memcpy(id.text, making.id.text, sizeof id.text);
  memcpy(id.magic, kMagic, sizeof id.magic);
  if (getrandom(id.nonce, sizeof id.nonce, 0) != sizeof id.nonce) return kNoNonce;
  memcpy(out, &id, sizeof id);
  return 0;
}

/* Fails if this process has used the id: two ranks of one process would wait for each other for
 * ever. */
static int note_id(const Id* id) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static struct Noted {
    struct Noted* next;
    Id id;
  }* noted;
  int code = 0;
  pthread_mutex_lock(&mutex);
  for (const struct Noted* one = noted; one != NULL; one = one->next)
    if (memcmp(&one->id, id, sizeof one->id) == 0) code = kSameProcess;
  if (code == 0) {
    struct Noted* one = malloc(sizeof *one);
    if (one == NULL) {
      code = kNoMemory;
    } else {
      one->id = *id;
      one->next = noted;
      noted = one;
    }
  }
  pthread_mutex_unlock(&mutex);
  return code;
}

static Cluster* new_cluster(const Id* id, int n_ranks, int rank) {
  Cluster* cluster = calloc(1, sizeof *cluster);
  pthread_condattr_t attributes;
  if (cluster == NULL) return NULL;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&cluster->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&cluster->mutex, NULL);
  memcpy(cluster->id.text, id->text, sizeof id->text);
  cluster->n_ranks = n_ranks;
  cluster->rank = rank;
  return cluster;
}

static void free_cluster(Cluster* cluster) {
  pthread_cond_destroy(&cluster->changed);
  pthread_mutex_destroy(&cluster->mutex);
  free(cluster);
}

static struct timespec time_in(int64_t ms) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  time.tv_sec += ms / 1000;
  time.tv_nsec += ms % 1000 * 1000000;
  if (time.tv_nsec >= 1000000000) {
    time.tv_nsec -= 1000000000;
    ++time.tv_sec;
  }
  return time;
}

/* After a timeout the thread and its cluster are leaked, because oneCCL's init cannot be aborted.
 */
static int wait_for_init(Cluster* cluster, int64_t timeout_ms) {
  const struct timespec end = time_in(timeout_ms);
  int waited = 0;
  pthread_mutex_lock(&cluster->mutex);
  while (!cluster->ready && waited != ETIMEDOUT)
    waited = pthread_cond_timedwait(&cluster->changed, &cluster->mutex, &end);
  const int ready = cluster->ready;
  cluster->ended = !ready || cluster->code != 0;
  const int code = cluster->code;
  pthread_cond_broadcast(&cluster->changed);
  pthread_mutex_unlock(&cluster->mutex);
  if (!ready) {
    pthread_detach(cluster->thread);
    return kTimeout;
  }
  if (code == 0) return 0;
  pthread_join(cluster->thread, NULL);
  free_cluster(cluster);
  return code;
}

static int init(const void* bytes, int n_ranks, int rank, int64_t timeout_ms, void** out) {
  Id id;
  memcpy(&id, bytes, sizeof id);
  if (memcmp(id.magic, kMagic, sizeof kMagic) != 0) return kForeign;
  int code = note_id(&id);
  if (code != 0) return code;
  Cluster* cluster = new_cluster(&id, n_ranks, rank);
  if (cluster == NULL) return kNoMemory;
  code = start_thread(&cluster->thread, serve, cluster);
  if (code != 0) {
    free_cluster(cluster);
    return code;
  }
  code = wait_for_init(cluster, timeout_ms);
  if (code == 0) *out = cluster;
  return code;
}

static void free_call(Call* call) {
  for (size_t i = 0; i < call->n_steps; ++i) free(call->steps[i].memory);
  if (call->exchange != NULL) {
    free(call->exchange->sent);
    free(call->exchange->received);
    free(call->exchange->n_sent);
    free(call->exchange->n_received);
    free(call->exchange);
  }
  free(call->steps);
  free(call->results);
  free(call);
}

/* Leaks oneCCL's communicator: onecclCommDestroy waits for all ranks in the leader's process, and
 * in others aborts the process if the leader's has ended. */
static void destroy(void* communicator) {
  Cluster* cluster = communicator;
  pthread_mutex_lock(&cluster->mutex);
  cluster->ended = 1;
  const int is_busy = next_call(cluster) != NULL;
  pthread_cond_broadcast(&cluster->changed);
  pthread_mutex_unlock(&cluster->mutex);
  if (is_busy) {
    pthread_detach(cluster->thread);
    return;
  }
  pthread_join(cluster->thread, NULL);
  while (cluster->calls != NULL) {
    Call* call = cluster->calls;
    cluster->calls = call->next;
    free_call(call);
  }
  free_cluster(cluster);
}

/* --- start and test */

/* oneCCL refuses NULL, even if there is nothing to move. */
static void* new_memory(size_t bytes) {
  return malloc(bytes > 0 ? bytes : 1);
}

static void add_result(Call* call, void* to, const char* from, size_t n) {
  call->results[call->n_results++] = (Result){to, from, n};
}

static int add_reduction(const Cluster* cluster, Call* call, const hetcclLibraryWork* work,
                         const hetcclLibraryPiece* piece) {
  const int to_all = work->call == hetcclLibraryAllReduce;
  const size_t n = piece->count;
  char* memory = new_memory(n * (call->form.bytes > 0 ? call->form.key_bytes : call->size));
  if (memory == NULL) return kNoMemory;
  call->steps[call->n_steps++] = (Step){to_all ? kReduceAll : kReduceTo, piece->root, memory, n};
  if (call->form.bytes > 0)
    make_keys(memory, piece->send, n, call->form, work->op);
  else
    memcpy(memory, piece->send, n * call->size);
  if (to_all || piece->root == cluster->rank) add_result(call, piece->recv, memory, n);
  return 0;
}

static int add_broadcast(const Cluster* cluster, Call* call, const hetcclLibraryWork* work,
                         const hetcclLibraryPiece* piece) {
  const int is_root = piece->root == cluster->rank;
  const int receives = piece->receiver < 0 || piece->receiver == cluster->rank;
  const size_t bytes = piece->count * call->size;
  (void)work;
  if (!is_root && !receives) return 0;
  Step step = {.memory = new_memory(bytes), .n = bytes};
  if (step.memory == NULL) return kNoMemory;
  step.action = piece->receiver < 0    ? kBroadcastFrom
                : is_root && !receives ? kSendTo
                : is_root              ? kKeep
                                       : kReceiveFrom;
  step.peer = step.action == kSendTo ? piece->receiver : piece->root;
  call->steps[call->n_steps++] = step;
  if (is_root) memcpy(step.memory, piece->send, bytes);
  if (receives) add_result(call, piece->recv, step.memory, piece->count);
  return 0;
}

static int add_pieces(const Cluster* cluster, Call* call, const hetcclLibraryWork* work) {
  const int is_broadcast = work->call == hetcclLibraryBroadcast;
  int code = 0;
  if (!is_broadcast && !reduces(work->type, work->op)) return kUnknownCall;
  for (size_t p = 0; p < work->n_pieces && code == 0; ++p) {
    if (work->pieces[p].count == 0) continue;
    code = (is_broadcast ? add_broadcast : add_reduction)(cluster, call, work, &work->pieces[p]);
  }
  return code;
}

/* A barrier: it completes only once all ranks have contributed a byte. */
static int add_barrier(Call* call) {
  char* memory = calloc(1, 1);
  if (memory == NULL) return kNoMemory;
  call->type = kUint8;
  call->op = kSum;
  call->steps[call->n_steps++] = (Step){kReduceAll, 0, memory, 1};
  return 0;
}

static size_t sum_of(const size_t* sizes, int n) {
  size_t sum = 0;
  for (int i = 0; i < n; ++i) sum += sizes[i];
  return sum;
}

/* Messages of one peer are contiguous, in order; peers are in rank order. */
static void place_messages(const Cluster* cluster, Call* call, const hetcclLibraryWork* work) {
  const Exchange* all = call->exchange;
  char *send_to = all->sent, *receive_from = all->received;
  for (int peer = 0; peer < cluster->n_ranks; ++peer) {
    for (size_t m = 0; m < work->n_messages; ++m) {
      const hetcclLibraryMessage* message = &work->messages[m];
      const size_t bytes = message->count * call->size;
      if (message->peer != peer || bytes == 0) continue;
      if (message->sends) {
        memcpy(send_to, message->data, bytes);
        send_to += bytes;
      } else {
        add_result(call, message->data, receive_from, message->count);
        receive_from += bytes;
      }
    }
  }
}

static int add_exchange(const Cluster* cluster, Call* call, const hetcclLibraryWork* work) {
  const size_t n = (size_t)cluster->n_ranks;
  Exchange* all = call->exchange = calloc(1, sizeof *all);
  if (all == NULL) return kNoMemory;
  all->n_sent = calloc(n, sizeof *all->n_sent);
  all->n_received = calloc(n, sizeof *all->n_received);
  if (all->n_sent == NULL || all->n_received == NULL) return kNoMemory;
  for (size_t m = 0; m < work->n_messages; ++m) {
    const hetcclLibraryMessage* message = &work->messages[m];
    if (message->count == 0) continue;
    size_t* sizes = message->sends ? all->n_sent : all->n_received;
    sizes[message->peer] += message->count * call->size;
  }
  all->sent = new_memory(sum_of(all->n_sent, cluster->n_ranks));
  all->received = new_memory(sum_of(all->n_received, cluster->n_ranks));
  if (all->sent == NULL || all->received == NULL) return kNoMemory;
  place_messages(cluster, call, work);
  return 0;
}

static int fill_call(const Cluster* cluster, Call* call, const hetcclLibraryWork* work) {
  call->steps = calloc(work->n_pieces + 1, sizeof *call->steps);
  call->results = calloc(work->n_pieces + work->n_messages + 1, sizeof *call->results);
  if (call->steps == NULL || call->results == NULL) return kNoMemory;
  call->size = size_of(work);
  switch (work->call) {
    case hetcclLibraryAllReduce:
    case hetcclLibraryReduce:
      call->form = key_form(work->type, work->op);
      call->op = op_of(work->op);
      call->type = call->form.bytes == 0       ? type_of(work->type)
                   : call->form.key_bytes == 4 ? kInt32
                                               : kInt64;
      return add_pieces(cluster, call, work);
    case hetcclLibraryBroadcast:
      return add_pieces(cluster, call, work);
    case hetcclLibraryExchange:
      return add_exchange(cluster, call, work);
    case hetcclLibraryBarrier:
      return add_barrier(call);
  }
  return kUnknownCall;
}

static int start(void* communicator, const hetcclLibraryWork* work, void** out) {
  Cluster* cluster = communicator;
  Call* call = calloc(1, sizeof *call);
  if (call == NULL) return kNoMemory;
  const int code = fill_call(cluster, call, work);
  if (code != 0) {
    free_call(call);
    return code;
  }
  *out = call;
  pthread_mutex_lock(&cluster->mutex);
  Call** last = &cluster->calls;
  while (*last != NULL) last = &(*last)->next;
  *last = call;
  pthread_cond_broadcast(&cluster->changed);
  pthread_mutex_unlock(&cluster->mutex);
  return 0;
}

static int test(void* communicator, void* request, int* done) {
  Cluster* cluster = communicator;
  Call* call = request;
  *done = 0;
  pthread_mutex_lock(&cluster->mutex);
  const int is_complete = call->done && call->code == 0;
  const int code = call->code;
  if (is_complete) {
    Call** at = &cluster->calls;
    while (*at != call) at = &(*at)->next;
    *at = call->next;
  }
  pthread_mutex_unlock(&cluster->mutex);
  if (!is_complete) return code;
  for (size_t i = 0; i < call->n_results; ++i) {
    const Result* result = &call->results[i];
    if (call->form.bytes > 0)
      read_keys(result->to, result->from, result->n, call->form);
    else
      memcpy(result->to, result->from, result->n * call->size);
  }
  free_call(call);
  *done = 1;
  return 0;
}

static hetcclLibraryAdaptor library = {
    .size = sizeof library,
    .name = "oneccl",
    .version = found.version,
    .capabilities = HETCCL_LIBRARY_JOINS_HOSTS | HETCCL_LIBRARY_EXCHANGES | HETCCL_LIBRARY_SENDS,
    .error_text = error_text,
    .score = score,
    .reduces = reduces,
    .make_id = make_id,
    .init = init,
    .start = start,
    .test = test,
    .destroy = destroy,
};

__attribute__((visibility("default"))) const hetcclAdaptorTable* hetcclAdaptor(uint32_t abi) {
  static hetcclAdaptorTable table = {
      .size = sizeof table, .abi = HETCCL_ADAPTOR_ABI, .library = &library};
  if (abi < HETCCL_ADAPTOR_ABI) return NULL;
  load_oneccl();
  return &table;
}
