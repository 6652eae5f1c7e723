/* Collectives of a cluster by MPI, for hetccl: any MPI, whose library the process is started with.
 *
 * The process belongs to an MPI job (mpirun); MPI_Init may have been called, with
 * MPI_THREAD_MULTIPLE, or this calls it. The ranks of a cluster find each other by messages in
 * MPI_COMM_WORLD with tags from kTag on, which programs should leave alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hetccl/adaptor.h"

enum { kTag = 28000, kTags = 2000, kMostAtOnce = 1 << 30, kTimeout = 1 << 30 };
static const char kMagic[8] = "hcclmpi";

/* What the ranks of a cluster meet by. */
typedef struct {
  char magic[8];
  int32_t leader; /* its rank in MPI_COMM_WORLD */
  int32_t tag;
} Id;

typedef struct {
  MPI_Comm comm;
  int rank;
  int n_under_way; /* calls */
} Cluster;

typedef struct {
  MPI_Request* parts;
  int n_parts, room;
} Request;

static MPI_Op max_float, max_double, min_float, min_double;
static int live; /* communicators */
static char version[64];

static const char* error_text(int code) {
  static _Thread_local char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (code == kTimeout) return "the other ranks did not come in time";
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "unknown MPI error";
  return text;
}

/* --- types and operators */

static MPI_Datatype type_of(hetcclDataType_t type) {
  switch (type) {
    case hetcclInt8:
      return MPI_INT8_T;
    case hetcclInt16:
      return MPI_INT16_T;
    case hetcclUint16:
      return MPI_UINT16_T;
    case hetcclInt32:
      return MPI_INT32_T;
    case hetcclUint32:
      return MPI_UINT32_T;
    case hetcclInt64:
      return MPI_INT64_T;
    case hetcclUint64:
      return MPI_UINT64_T;
    case hetcclFloat32:
      return MPI_FLOAT;
    case hetcclFloat64:
      return MPI_DOUBLE;
    case hetcclFloat16:
    case hetcclBfloat16:
      return MPI_UINT16_T; /* moved, not reduced */
    default:
      return MPI_UINT8_T;
  }
}

static size_t size_of(hetcclDataType_t type) {
  int size = 0;
  MPI_Type_size(type_of(type), &size);
  return (size_t)size;
}

/* MPI's own maxima and minima of floats may lose a NaN. */
#define EXTREME(name, Type, better)                                                     \
  static void name(void* in, void* inout, int* n, MPI_Datatype* type) {                 \
    const Type* a = in;                                                                 \
    Type* b = inout;                                                                    \
    (void)type;                                                                         \
    for (int i = 0; i < *n; ++i) b[i] = a[i] better b[i] || a[i] != a[i] ? a[i] : b[i]; \
  }
EXTREME(take_max_float, float, >)
EXTREME(take_max_double, double, >)
EXTREME(take_min_float, float, <)
EXTREME(take_min_double, double, <)

static int is_float(hetcclDataType_t type) {
  return type == hetcclFloat32 || type == hetcclFloat64;
}

static MPI_Op op_of(hetcclRedOp_t op, hetcclDataType_t type) {
  switch (op) {
    case hetcclSum:
      return MPI_SUM;
    case hetcclProd:
      return MPI_PROD;
    case hetcclMax:
      return type == hetcclFloat32 ? max_float : type == hetcclFloat64 ? max_double : MPI_MAX;
    case hetcclMin:
      return type == hetcclFloat32 ? min_float : type == hetcclFloat64 ? min_double : MPI_MIN;
    case hetcclBand:
      return MPI_BAND;
    case hetcclBor:
      return MPI_BOR;
    case hetcclBxor:
      return MPI_BXOR;
    default:
      return MPI_OP_NULL;
  }
}

static int reduces(hetcclDataType_t type, hetcclRedOp_t op) {
  if (type == hetcclFloat16 || type == hetcclBfloat16 || type == hetcclFloat8e4m3 ||
      type == hetcclFloat8e5m2)
    return 0;
  if (op == hetcclBand || op == hetcclBor || op == hetcclBxor) return !is_float(type);
  return op == hetcclSum || op == hetcclProd || op == hetcclMax || op == hetcclMin;
}

/* --- the process */

static void finalize(void) {
  int done = 0;
  MPI_Finalized(&done);
  if (!done && live == 0) MPI_Finalize();
}

/* Open MPI's plugins look for its symbols among the process's own. */
static void show_symbols(void) {
  Dl_info mpi;
  if (dladdr((const void*)&MPI_Init_thread, &mpi) != 0)
    dlopen(mpi.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

static int score(void) {
  int started = 0, level = 0, size = 0;
  MPI_Initialized(&started);
  if (!started) {
    show_symbols();
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) return 0;
    atexit(finalize);
  }
  MPI_Query_thread(&level);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (level < MPI_THREAD_MULTIPLE || size < 2) return 0;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Op_create(take_max_float, 1, &max_float);
  MPI_Op_create(take_max_double, 1, &max_double);
  MPI_Op_create(take_min_float, 1, &min_float);
  MPI_Op_create(take_min_double, 1, &min_double);
  return 2 * HETCCL_OWN_SCORE;
}

/* --- clusters */

static int make_id(int n_ranks, void* out) {
  static int made;
  Id id = {.tag = kTag + __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED) % kTags};
  (void)n_ranks;
  memcpy(id.magic, kMagic, sizeof id.magic);
  const int code = MPI_Comm_rank(MPI_COMM_WORLD, &id.leader);
  memcpy(out, &id, sizeof id);
  return code;
}

static int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * (int64_t)1000 + time.tv_nsec / 1000000;
}

static int wait_until(MPI_Request* request, int64_t end_ms) {
  int done = 0, code = MPI_SUCCESS;
  while ((code = MPI_Test(request, &done, MPI_STATUS_IGNORE)) == MPI_SUCCESS && !done) {
    if (now_ms() > end_ms) {
      MPI_Cancel(request);
      MPI_Request_free(request);
      return kTimeout;
    }
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  }
  return code;
}

/* The leader learns each member's rank in the world. */
static int gather_members(const Id* id, int n_ranks, int* members, int64_t end_ms) {
  for (int i = 1; i < n_ranks; ++i) {
    int both[2];
    MPI_Request request;
    int code = MPI_Irecv(both, 2, MPI_INT, MPI_ANY_SOURCE, id->tag, MPI_COMM_WORLD, &request);
    if (code == MPI_SUCCESS) code = wait_until(&request, end_ms);
    if (code != MPI_SUCCESS) return code;
    if (both[0] < 1 || both[0] >= n_ranks) return MPI_ERR_RANK;
    members[both[0]] = both[1];
  }
  for (int i = 1; i < n_ranks; ++i) {
    const int code = MPI_Send(members, n_ranks, MPI_INT, members[i], id->tag, MPI_COMM_WORLD);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

static int tell_leader(const Id* id, int n_ranks, int rank, int* members, int64_t end_ms) {
  const int both[2] = {rank, members[rank]};
  MPI_Request request;
  int code = MPI_Send(both, 2, MPI_INT, id->leader, id->tag, MPI_COMM_WORLD);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Irecv(members, n_ranks, MPI_INT, id->leader, id->tag, MPI_COMM_WORLD, &request);
  return code == MPI_SUCCESS ? wait_until(&request, end_ms) : code;
}

static int join(const Id* id, int n_ranks, int rank, int64_t end_ms, MPI_Comm* comm) {
  int* members = calloc((size_t)n_ranks, sizeof *members);
  if (members == NULL) return MPI_ERR_NO_MEM;
  MPI_Comm_rank(MPI_COMM_WORLD, &members[rank]);
  int code = rank == 0 ? gather_members(id, n_ranks, members, end_ms)
                       : tell_leader(id, n_ranks, rank, members, end_ms);
  if (code == MPI_SUCCESS) {
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, n_ranks, members, &group);
    code = MPI_Comm_create_group(MPI_COMM_WORLD, group, id->tag, comm);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
  }
  free(members);
  return code;
}

static int init(const void* bytes, int n_ranks, int rank, int64_t timeout_ms, void** out) {
  Id id;
  memcpy(&id, bytes, sizeof id);
  if (memcmp(id.magic, kMagic, sizeof kMagic) != 0) return MPI_ERR_ARG;
  Cluster* cluster = calloc(1, sizeof *cluster);
  if (cluster == NULL) return MPI_ERR_NO_MEM;
  cluster->rank = rank;
  const int code = n_ranks == 1 ? MPI_Comm_dup(MPI_COMM_SELF, &cluster->comm)
                                : join(&id, n_ranks, rank, now_ms() + timeout_ms, &cluster->comm);
  if (code != MPI_SUCCESS) {
    free(cluster);
    return code;
  }
  MPI_Comm_set_errhandler(cluster->comm, MPI_ERRORS_RETURN);
  __atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
  *out = cluster;
  return MPI_SUCCESS;
}

/* Buffers may not be touched any more, and MPI ends no collective: where calls are under way
 * nothing of MPI is called any more, not even MPI_Finalize. */
static void destroy(void* communicator) {
  Cluster* cluster = communicator;
  if (cluster->n_under_way > 0) return;
  MPI_Comm_free(&cluster->comm);
  __atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
  free(cluster);
}

/* --- calls */

static MPI_Request* next_part(Request* request) {
  if (request->n_parts == request->room) {
    const int room = request->room == 0 ? 4 : 2 * request->room;
    MPI_Request* parts = realloc(request->parts, (size_t)room * sizeof *parts);
    if (parts == NULL) return NULL;
    request->parts = parts;
    request->room = room;
  }
  request->parts[request->n_parts] = MPI_REQUEST_NULL;
  return &request->parts[request->n_parts++];
}

/* Each of these begins `n` elements of one piece, from element `at` on. */
typedef int Begin(const Cluster*, const hetcclLibraryWork*, const hetcclLibraryPiece*, size_t at,
                  int n, MPI_Request*);

static const char* from(const void* base, size_t at, hetcclDataType_t type) {
  return (const char*)base + at * size_of(type);
}
static char* to(void* base, size_t at, hetcclDataType_t type) {
  return (char*)base + at * size_of(type);
}

static int begin_all_reduce(const Cluster* cluster, const hetcclLibraryWork* work,
                            const hetcclLibraryPiece* piece, size_t at, int n,
                            MPI_Request* request) {
  const void* send = piece->send == piece->recv ? MPI_IN_PLACE : from(piece->send, at, work->type);
  return MPI_Iallreduce(send, to(piece->recv, at, work->type), n, type_of(work->type),
                        op_of(work->op, work->type), cluster->comm, request);
}

static int begin_reduce(const Cluster* cluster, const hetcclLibraryWork* work,
                        const hetcclLibraryPiece* piece, size_t at, int n, MPI_Request* request) {
  const int is_root = piece->root == cluster->rank;
  const void* send =
      is_root && piece->send == piece->recv ? MPI_IN_PLACE : from(piece->send, at, work->type);
  return MPI_Ireduce(send, is_root ? to(piece->recv, at, work->type) : NULL, n, type_of(work->type),
                     op_of(work->op, work->type), piece->root, cluster->comm, request);
}

static int begin_broadcast(const Cluster* cluster, const hetcclLibraryWork* work,
                           const hetcclLibraryPiece* piece, size_t at, int n,
                           MPI_Request* request) {
  const int is_root = piece->root == cluster->rank;
  const int receives = piece->receiver < 0 || piece->receiver == cluster->rank;
  if (is_root && receives && piece->recv != piece->send)
    memcpy(to(piece->recv, at, work->type), from(piece->send, at, work->type),
           (size_t)n * size_of(work->type));
  char* data = is_root ? (char*)from(piece->send, at, work->type) : to(piece->recv, at, work->type);
  if (piece->receiver < 0)
    return MPI_Ibcast(data, n, type_of(work->type), piece->root, cluster->comm, request);
  if (piece->receiver == piece->root) return MPI_SUCCESS;
  if (is_root)
    return MPI_Isend(data, n, type_of(work->type), piece->receiver, 0, cluster->comm, request);
  if (receives)
    return MPI_Irecv(data, n, type_of(work->type), piece->root, 0, cluster->comm, request);
  return MPI_SUCCESS;
}

static int begin_pieces(const Cluster* cluster, const hetcclLibraryWork* work, Begin* begin,
                        Request* request) {
  for (size_t p = 0; p < work->n_pieces; ++p) {
    const hetcclLibraryPiece* piece = &work->pieces[p];
    for (size_t at = 0; at < piece->count; at += kMostAtOnce) {
      const size_t left = piece->count - at;
      MPI_Request* part = next_part(request);
      if (part == NULL) return MPI_ERR_NO_MEM;
      const int code =
          begin(cluster, work, piece, at, left < kMostAtOnce ? (int)left : kMostAtOnce, part);
      if (code != MPI_SUCCESS) return code;
    }
  }
  return MPI_SUCCESS;
}

/* Messages of a rank to itself go through MPI, too: their n-th meets the n-th. In place they need
 * not move. */
static int begin_message(const Cluster* cluster, const hetcclLibraryWork* work,
                         const hetcclLibraryMessage* message, Request* request) {
  for (size_t at = 0; at < message->count; at += kMostAtOnce) {
    const size_t left = message->count - at;
    const int n = left < kMostAtOnce ? (int)left : kMostAtOnce;
    char* data = to(message->data, at, work->type);
    MPI_Request* part = next_part(request);
    if (part == NULL) return MPI_ERR_NO_MEM;
    const int code =
        message->sends
            ? MPI_Isend(data, n, type_of(work->type), message->peer, 1, cluster->comm, part)
            : MPI_Irecv(data, n, type_of(work->type), message->peer, 1, cluster->comm, part);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

static int begin_exchange(const Cluster* cluster, const hetcclLibraryWork* work, Request* request) {
  for (int sends = 0; sends < 2; ++sends) {
    for (size_t m = 0; m < work->n_messages; ++m) {
      if (work->messages[m].sends != sends) continue;
      const int code = begin_message(cluster, work, &work->messages[m], request);
      if (code != MPI_SUCCESS) return code;
    }
  }
  return MPI_SUCCESS;
}

static int begin_barrier(const Cluster* cluster, Request* request) {
  MPI_Request* part = next_part(request);
  return part == NULL ? MPI_ERR_NO_MEM : MPI_Ibarrier(cluster->comm, part);
}

static int start(void* communicator, const hetcclLibraryWork* work, void** out) {
  Cluster* cluster = communicator;
  Request* request = calloc(1, sizeof *request);
  if (request == NULL) return MPI_ERR_NO_MEM;
  ++cluster->n_under_way;
  *out = request;
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

static int test(void* communicator, void* request, int* done) {
  Cluster* cluster = communicator;
  Request* mine = request;
  const int code = MPI_Testall(mine->n_parts, mine->parts, done, MPI_STATUSES_IGNORE);
  if (code == MPI_SUCCESS && *done) {
    --cluster->n_under_way;
    free(mine->parts);
    free(mine);
  }
  return code;
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
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (abi < HETCCL_ADAPTOR_ABI) return NULL;
  MPI_Get_library_version(text, &length);
  for (int i = 0; i < length; ++i)
    if (text[i] < 0x20 || text[i] > 0x7e) text[i] = ' ';
  snprintf(version, sizeof version, "%.*s", (int)sizeof version - 1, text);
  return &table;
}
