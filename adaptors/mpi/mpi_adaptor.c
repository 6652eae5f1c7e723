/* Collectives of a cluster by MPI, for hetccl: by the MPI whose library the process is started
 * with.
 *
 * The process must belong to an MPI job (mpirun). If the program has not called MPI_Init, with
 * MPI_THREAD_MULTIPLE, the adaptor does. The ranks of a cluster find each other by messages in
 * MPI_COMM_WORLD with tags from kTag on, which programs should not use. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "hetccl/adaptor.h"
#include "job.h"
#include "types.h"

enum {
  kTag = 28000,
  kLeastTags = 2000,
  kTagsEach = 1024,
  kMostAtOnce = 1 << 22,
  kTimeout = 1 << 30,
  kFinalized,
  kForeign,
  kSameProcess,
  kOtherJob,
  kNoNonce
};
static const char kMagic[8] = "hcclmpi";

/* The id by which the ranks of a cluster meet. */
typedef struct {
  char magic[8];
  uint64_t process; /* random number of the process that made the id */
  int32_t leader;   /* its rank in MPI_COMM_WORLD */
  int32_t world;    /* the size of its MPI_COMM_WORLD */
  int64_t number;   /* count of the ids that it has made */
} Id;

typedef struct {
  MPI_Comm comm;
  int rank;
  int n_under_way; /* in calls */
} Cluster;

/* A part of a call. MPI reads and writes memory of the adaptor's own: MPI cannot end a call, so the
 * caller's buffers would be unsafe after `destroy`. */
typedef struct {
  MPI_Request request;
  char* memory;
  void* out; /* destination of the result, or NULL */
  size_t bytes;
} Part;

typedef struct {
  Part* parts;
  int n_parts, room;
} Request;

/* Number of communicators, and of threads that are in MPI to make one. A failed init counts for
 * ever, because its messages are still pending. */
static int live;
static int closing;      /* `finalize` has begun: nothing new may begin */
static int finalizing;   /* MPI_Finalize has begun */
static pid_t owner;      /* the process whose `finalize` may call MPI_Finalize; not a forked
                            child */
static uint64_t process; /* in the ids that this process makes */
static char version[64];

static const char* error_text(int code) {
  static _Thread_local char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (code == kTimeout)
    return "the other ranks did not come in time; if they belong to different MPI jobs, give each "
           "job a HETCCL_CLUSTER of its own";
  if (code == kFinalized) return "MPI_Finalize has been called";
  if (code == kForeign) return "this id is not the adaptor's, or a rank has another";
  if (code == kSameProcess)
    return "two ranks of a cluster are in one MPI process: start a process for each rank";
  if (code == kOtherJob)
    return "the ranks of a cluster belong to different MPI jobs: give each job a HETCCL_CLUSTER of "
           "its own";
  if (code == kNoNonce) return "the system gives no random bytes";
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "unknown MPI error";
  return text;
}

/* --- the process */

/* Runs at exit. While a communicator exists, MPI_Finalize might wait for other ranks for ever, and
 * a thread in MPI would abort the process. A forked child inherits this handler, but not MPI. */
static void finalize(void) {
  int done = 0;
  if (getpid() != owner) return;
  __atomic_store_n(&closing, 1, __ATOMIC_SEQ_CST);
  MPI_Finalized(&done);
  if (!done && __atomic_load_n(&live, __ATOMIC_SEQ_CST) == 0) MPI_Finalize();
}

/* MPI_Finalize begins with this callback, whoever calls it. From then on this adaptor's threads do
 * not call MPI. */
static int note_finalize(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm, (void)key, (void)value, (void)extra;
  __atomic_store_n(&finalizing, 1, __ATOMIC_SEQ_CST);
  return MPI_SUCCESS;
}

static void watch_finalize(void) {
  int key = MPI_KEYVAL_INVALID;
  if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, note_finalize, &key, NULL) == MPI_SUCCESS)
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}

/* Open MPI's plug-ins look for its symbols among the process's global ones. */
static void show_symbols(void) {
  Dl_info mpi;
  if (dladdr((const void*)&MPI_Init_thread, &mpi) != 0)
    dlopen(mpi.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

static int is_finalized(void) {
  int done = __atomic_load_n(&finalizing, __ATOMIC_SEQ_CST);
  if (!done) MPI_Finalized(&done);
  return done;
}

static void leave(void) {
  __atomic_fetch_sub(&live, 1, __ATOMIC_SEQ_CST);
}

/* Keeps `finalize` from calling MPI_Finalize until `leave`. Returns 0 if it is too late. */
static int enter(void) {
  __atomic_fetch_add(&live, 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&closing, __ATOMIC_SEQ_CST) && !is_finalized()) return 1;
  leave();
  return 0;
}

static int start_mpi(void) {
  int started = 0, level = 0, size = 0;
  MPI_Initialized(&started);
  if (!started) {
    show_symbols();
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) return 0;
    owner = getpid();
    atexit(finalize);
  }
  MPI_Query_thread(&level);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (level < MPI_THREAD_MULTIPLE || size < 2) return 0;
  if (!started) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  watch_finalize();
  make_operators();
  return 2 * HETCCL_OWN_SCORE;
}

static int score(void) {
  if (!enter()) return 0;
  const int best = start_mpi();
  leave();
  return best;
}

/* --- clusters */

static int make_id(int n_ranks, void* out) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static int64_t made;
  Id id = {.number = 0};
  int code = kFinalized;
  (void)n_ranks;
  if (!enter()) return code;
  memcpy(id.magic, kMagic, sizeof id.magic);
  pthread_mutex_lock(&mutex);
  const int is_named =
      made > 0 || getrandom(&process, sizeof process, 0) == (ssize_t)sizeof process;
  id.process = process;
  if (is_named) id.number = made++;
  pthread_mutex_unlock(&mutex);
  code = is_named ? MPI_Comm_rank(MPI_COMM_WORLD, &id.leader) : kNoNonce;
  if (code == MPI_SUCCESS) code = MPI_Comm_size(MPI_COMM_WORLD, &id.world);
  leave();
  memcpy(out, &id, sizeof id);
  return code;
}

/* A tag that no other forming cluster uses, provided MPI has enough tags for all leaders. */
static int tag_of(const Id* id) {
  int* most = NULL;
  int found = 0, size = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int64_t tags = found ? (int64_t)*most - kTag : kLeastTags;
  const int64_t wanted = (int64_t)id->leader * kTagsEach + id->number % kTagsEach;
  return kTag + (int)(wanted % tags);
}

static int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * (int64_t)1000 + time.tv_nsec / 1000000;
}

/* On a timeout, memory that the request uses must stay alive: MPI may write to it later. */
static int wait_until(MPI_Request* request, int64_t end_ms) {
  int done = 0, code = MPI_SUCCESS;
  if (is_finalized()) return kFinalized;
  while ((code = MPI_Test(request, &done, MPI_STATUS_IGNORE)) == MPI_SUCCESS && !done) {
    if (now_ms() > end_ms) return kTimeout;
    if (is_finalized()) return kFinalized;
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  }
  return code;
}

/* Messages that form a cluster. They are kept if one of them is given up. */
typedef struct {
  Id id;
  int32_t rank, world;
} Hello;

typedef struct {
  MPI_Request request;
  Hello hello;
  int* members;
} Meeting;

static int send_to(Meeting* meeting, const void* data, int n, int world, int tag, int64_t end_ms) {
  const int code = MPI_Isend(data, n, MPI_BYTE, world, tag, MPI_COMM_WORLD, &meeting->request);
  return code == MPI_SUCCESS ? wait_until(&meeting->request, end_ms) : code;
}

static int receive(Meeting* meeting, void* data, int n, int world, int tag, int64_t end_ms) {
  const int code = MPI_Irecv(data, n, MPI_BYTE, world, tag, MPI_COMM_WORLD, &meeting->request);
  return code == MPI_SUCCESS ? wait_until(&meeting->request, end_ms) : code;
}

static int add_member(int* members, int n_ranks, const Hello* hello) {
  if (hello->rank < 1 || hello->rank >= n_ranks) return kForeign;
  for (int i = 0; i < n_ranks; ++i)
    if (members[i] == hello->world) return kSameProcess;
  if (members[hello->rank] >= 0) return kForeign;
  members[hello->rank] = hello->world;
  return MPI_SUCCESS;
}

/* The leader learns each member's rank in MPI_COMM_WORLD and tells all members. Only the leader
 * receives messages with its own tag; members receive from their leader. A message with another id
 * comes from an init that has been given up, or from another job's communicator. */
static int lead(Meeting* meeting, const Id* id, int n_ranks, int64_t end_ms) {
  const int bytes = n_ranks * (int)sizeof *meeting->members;
  for (int n_met = 1; n_met < n_ranks;) {
    Hello* hello = &meeting->hello;
    int code = receive(meeting, hello, sizeof *hello, MPI_ANY_SOURCE, tag_of(id), end_ms);
    if (code != MPI_SUCCESS) return code;
    if (memcmp(&hello->id, id, sizeof *id) != 0) continue;
    code = add_member(meeting->members, n_ranks, hello);
    if (code != MPI_SUCCESS) return code;
    ++n_met;
  }
  for (int i = 1; i < n_ranks; ++i) {
    const int code =
        send_to(meeting, meeting->members, bytes, meeting->members[i], tag_of(id), end_ms);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

/* Whether the id's leader can be another process of this job. A leader of another job may have the
 * same rank as any process here. */
static int check_leader(const Id* id, int my_world_rank) {
  int world = 0;
  const int code = MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (code != MPI_SUCCESS) return code;
  if (id->process == __atomic_load_n(&process, __ATOMIC_RELAXED)) return kSameProcess;
  return id->world != world || id->leader == my_world_rank ? kOtherJob : MPI_SUCCESS;
}

static int follow(Meeting* meeting, const Id* id, int n_ranks, int rank, int64_t end_ms) {
  const int bytes = n_ranks * (int)sizeof *meeting->members;
  int code = check_leader(id, meeting->members[rank]);
  if (code != MPI_SUCCESS) return code;
  meeting->hello = (Hello){.id = *id, .rank = rank, .world = meeting->members[rank]};
  code = send_to(meeting, &meeting->hello, sizeof meeting->hello, id->leader, tag_of(id), end_ms);
  if (code != MPI_SUCCESS) return code;
  return receive(meeting, meeting->members, bytes, id->leader, tag_of(id), end_ms);
}

static int make_communicator(const int* members, int n_ranks, int tag, MPI_Comm* comm) {
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  int code = MPI_Comm_group(MPI_COMM_WORLD, &world);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Group_incl(world, n_ranks, members, &group);
  MPI_Group_free(&world);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, comm);
  MPI_Group_free(&group);
  return code;
}

static int join(const Id* id, int n_ranks, int rank, int64_t end_ms, MPI_Comm* comm) {
  Meeting* meeting = calloc(1, sizeof *meeting);
  if (meeting == NULL) return MPI_ERR_NO_MEM;
  meeting->members = malloc((size_t)n_ranks * sizeof *meeting->members);
  if (meeting->members == NULL) return MPI_ERR_NO_MEM;
  for (int i = 0; i < n_ranks; ++i) meeting->members[i] = -1;
  int code = MPI_Comm_rank(MPI_COMM_WORLD, &meeting->members[rank]);
  if (code != MPI_SUCCESS) return code;
  code =
      rank == 0 ? lead(meeting, id, n_ranks, end_ms) : follow(meeting, id, n_ranks, rank, end_ms);
  if (code != MPI_SUCCESS) return code; /* the meeting is leaked: see wait_until */
  code = make_communicator(meeting->members, n_ranks, tag_of(id), comm);
  free(meeting->members);
  free(meeting);
  return code;
}

static int make_cluster(const Id* id, int n_ranks, int rank, int64_t timeout_ms, Cluster* cluster) {
  cluster->rank = rank;
  const int code = n_ranks == 1 ? MPI_Comm_dup(MPI_COMM_SELF, &cluster->comm)
                                : join(id, n_ranks, rank, now_ms() + timeout_ms, &cluster->comm);
  if (code != MPI_SUCCESS) return code;
  return MPI_Comm_set_errhandler(cluster->comm, MPI_ERRORS_RETURN);
}

/* After a failure the thread stays counted: other ranks may be waiting in MPI, and MPI_Finalize
 * would wait for them. */
static int init(const void* bytes, int n_ranks, int rank, int64_t timeout_ms, void** out) {
  Id id;
  memcpy(&id, bytes, sizeof id);
  if (!enter()) return kFinalized;
  if (memcmp(id.magic, kMagic, sizeof kMagic) != 0) return kForeign;
  Cluster* cluster = calloc(1, sizeof *cluster);
  if (cluster == NULL) return MPI_ERR_NO_MEM;
  const int code = make_cluster(&id, n_ranks, rank, timeout_ms, cluster);
  if (code != MPI_SUCCESS) {
    free(cluster);
    return code;
  }
  *out = cluster;
  return MPI_SUCCESS;
}

/* Pending calls keep their memory and MPI communicator. MPI_Finalize would wait for other ranks, so
 * this adaptor does not call it in that case. */
static void destroy(void* communicator) {
  Cluster* cluster = communicator;
  if (cluster->n_under_way > 0 || is_finalized()) return;
  MPI_Comm_free(&cluster->comm);
  leave();
  free(cluster);
}

/* --- calls */

/* Adds a part with `bytes` of memory, a copy of `in` if there is one. */
static Part* add_part(Request* request, size_t bytes, const void* in, void* out) {
  if (request->n_parts == request->room) {
    const int room = request->room == 0 ? 4 : 2 * request->room;
    Part* parts = realloc(request->parts, (size_t)room * sizeof *parts);
    if (parts == NULL) return NULL;
    request->parts = parts;
    request->room = room;
  }
  Part* part = &request->parts[request->n_parts];
  *part = (Part){.request = MPI_REQUEST_NULL, .out = out, .bytes = bytes};
  part->memory = malloc(bytes);
  if (part->memory == NULL) return NULL;
  if (in != NULL) memcpy(part->memory, in, bytes);
  ++request->n_parts;
  return part;
}

static void free_request(Request* request) {
  for (int i = 0; i < request->n_parts; ++i) free(request->parts[i].memory);
  free(request->parts);
  free(request);
}

static int send_part(const Cluster* cluster, Part* part, int peer, int tag) {
  return MPI_Isend(part->memory, (int)part->bytes, MPI_BYTE, peer, tag, cluster->comm,
                   &part->request);
}

static int receive_part(const Cluster* cluster, Part* part, int peer, int tag) {
  return MPI_Irecv(part->memory, (int)part->bytes, MPI_BYTE, peer, tag, cluster->comm,
                   &part->request);
}

/* Begins a call for `n` elements of one piece at these addresses. */
typedef int Begin(const Cluster*, const hetcclLibraryWork*, const hetcclLibraryPiece*,
                  const void* send, void* recv, int n, Request*);

static int begin_all_reduce(const Cluster* cluster, const hetcclLibraryWork* work,
                            const hetcclLibraryPiece* piece, const void* send, void* recv, int n,
                            Request* request) {
  Part* part = add_part(request, (size_t)n * size_of(work), send, recv);
  (void)piece;
  if (part == NULL) return MPI_ERR_NO_MEM;
  return MPI_Iallreduce(MPI_IN_PLACE, part->memory, n, type_of(work->type),
                        op_of(work->op, work->type), cluster->comm, &part->request);
}

static int begin_reduce(const Cluster* cluster, const hetcclLibraryWork* work,
                        const hetcclLibraryPiece* piece, const void* send, void* recv, int n,
                        Request* request) {
  const int is_root = piece->root == cluster->rank;
  Part* part = add_part(request, (size_t)n * size_of(work), send, is_root ? recv : NULL);
  if (part == NULL) return MPI_ERR_NO_MEM;
  return MPI_Ireduce(is_root ? MPI_IN_PLACE : part->memory, is_root ? part->memory : NULL, n,
                     type_of(work->type), op_of(work->op, work->type), piece->root, cluster->comm,
                     &part->request);
}

static int begin_broadcast(const Cluster* cluster, const hetcclLibraryWork* work,
                           const hetcclLibraryPiece* piece, const void* send, void* recv, int n,
                           Request* request) {
  const int is_root = piece->root == cluster->rank;
  const int receives = piece->receiver < 0 || piece->receiver == cluster->rank;
  if (!is_root && !receives) return MPI_SUCCESS;
  Part* part =
      add_part(request, (size_t)n * size_of(work), is_root ? send : NULL, receives ? recv : NULL);
  if (part == NULL) return MPI_ERR_NO_MEM;
  const int bytes = (int)part->bytes;
  if (piece->receiver < 0)
    return MPI_Ibcast(part->memory, bytes, MPI_BYTE, piece->root, cluster->comm, &part->request);
  if (piece->receiver == piece->root) return MPI_SUCCESS;
  return is_root ? send_part(cluster, part, piece->receiver, 0)
                 : receive_part(cluster, part, piece->root, 0);
}

static const void* from(const void* base, size_t at, size_t size) {
  return base == NULL ? NULL : (const char*)base + at * size;
}
static void* to(void* base, size_t at, size_t size) {
  return base == NULL ? NULL : (char*)base + at * size;
}
static int part_of(size_t count, size_t at) {
  return count - at < kMostAtOnce ? (int)(count - at) : kMostAtOnce;
}

static int begin_pieces(const Cluster* cluster, const hetcclLibraryWork* work, Begin* begin,
                        Request* request) {
  const size_t size = size_of(work);
  for (size_t p = 0; p < work->n_pieces; ++p) {
    const hetcclLibraryPiece* piece = &work->pieces[p];
    for (size_t at = 0; at < piece->count; at += kMostAtOnce) {
      const int code = begin(cluster, work, piece, from(piece->send, at, size),
                             to(piece->recv, at, size), part_of(piece->count, at), request);
      if (code != MPI_SUCCESS) return code;
    }
  }
  return MPI_SUCCESS;
}

static int begin_message(const Cluster* cluster, const hetcclLibraryWork* work,
                         const hetcclLibraryMessage* message, Request* request) {
  const size_t size = size_of(work);
  for (size_t at = 0; at < message->count; at += kMostAtOnce) {
    const size_t bytes = (size_t)part_of(message->count, at) * size;
    void* data = to(message->data, at, size);
    Part* part =
        add_part(request, bytes, message->sends ? data : NULL, message->sends ? NULL : data);
    if (part == NULL) return MPI_ERR_NO_MEM;
    const int code = message->sends ? send_part(cluster, part, message->peer, 1)
                                    : receive_part(cluster, part, message->peer, 1);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

static int begin_exchange(const Cluster* cluster, const hetcclLibraryWork* work, Request* request) {
  for (size_t m = 0; m < work->n_messages; ++m) {
    const int code = begin_message(cluster, work, &work->messages[m], request);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

static int begin_barrier(const Cluster* cluster, Request* request) {
  Part* part = add_part(request, 1, NULL, NULL);
  return part == NULL ? MPI_ERR_NO_MEM : MPI_Ibarrier(cluster->comm, &part->request);
}

static int begin(const Cluster* cluster, const hetcclLibraryWork* work, Request* request) {
  switch (work->call) {
    case hetcclLibraryAllReduce:
      return begin_pieces(cluster, work, begin_all_reduce, request);
    case hetcclLibraryReduce:
      return begin_pieces(cluster, work, begin_reduce, request);
    case hetcclLibraryBroadcast:
      return begin_pieces(cluster, work, begin_broadcast, request);
    case hetcclLibraryExchange:
      return begin_exchange(cluster, work, request);
    case hetcclLibraryBarrier:
      return begin_barrier(cluster, request);
  }
  return MPI_ERR_ARG;
}

static int start(void* communicator, const hetcclLibraryWork* work, void** out) {
  Cluster* cluster = communicator;
  if (is_finalized()) return kFinalized;
  if (size_of(work) > INT_MAX / kMostAtOnce) return MPI_ERR_TYPE;
  Request* request = calloc(1, sizeof *request);
  if (request == NULL) return MPI_ERR_NO_MEM;
  ++cluster->n_under_way;
  *out = request;
  return begin(cluster, work, request);
}

static int test(void* communicator, void* request, int* done) {
  Cluster* cluster = communicator;
  Request* mine = request;
  *done = 0;
  if (is_finalized()) return kFinalized;
  for (int i = 0; i < mine->n_parts; ++i) {
    int complete = 0;
    const int code = MPI_Test(&mine->parts[i].request, &complete, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS || !complete) return code;
  }
  for (int i = 0; i < mine->n_parts; ++i) {
    const Part* part = &mine->parts[i];
    if (part->out != NULL) memcpy(part->out, part->memory, part->bytes);
  }
  free_request(mine);
  --cluster->n_under_way;
  *done = 1;
  return MPI_SUCCESS;
}

/* --- the table */

/* The version consists of the MPI's version and the job, since two jobs have separate
 * MPI_COMM_WORLDs. */
static void set_version(void) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  const uint64_t job = find_job();
  MPI_Get_library_version(text, &length);
  if (job != 0) text[strcspn(text, ",\n")] = 0;
  for (char* at = text; *at != 0; ++at)
    if (*at < 0x20 || *at > 0x7e) *at = ' ';
  if (job == 0)
    snprintf(version, sizeof version, "%.*s", (int)sizeof version - 1, text);
  else
    snprintf(version, sizeof version, "%.40s; job %016llx", text, (unsigned long long)job);
}

static hetcclLibraryAdaptor library = {
    .size = sizeof library,
    .name = "mpi",
    .version = version,
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
  set_version();
  return &table;
}
