/* Collectives of a cluster by MPI, for hetccl: any MPI, whose library the process is started with.
 *
 * The process belongs to an MPI job (mpirun); MPI_Init may have been called, with
 * MPI_THREAD_MULTIPLE, or this calls it. The ranks of a cluster find each other by messages in
 * MPI_COMM_WORLD with tags from kTag on, which programs should leave alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hetccl/adaptor.h"

enum {
  kTag = 28000,
  kLeastTags = 2000,
  kTagsEach = 1024,
  kMostAtOnce = 1 << 22,
  kTimeout = 1 << 30,
  kFinalized,
  kForeign
};
static const char kMagic[8] = "hcclmpi";

/* What the ranks of a cluster meet by. */
typedef struct {
  char magic[8];
  int32_t leader; /* its rank in MPI_COMM_WORLD */
  int32_t number; /* of the ids that it has made */
} Id;

typedef struct {
  MPI_Comm comm;
  int rank;
  int n_under_way; /* calls */
} Cluster;

/* A part of a call. MPI reads and writes memory of its own: it ends no call, so the caller's
 * buffers would not be safe once a communicator is destroyed. */
typedef struct {
  MPI_Request request;
  char* memory;
  void* out; /* where the result goes, or NULL */
  size_t bytes;
} Part;

typedef struct {
  Part* parts;
  int n_parts, room;
} Request;

static MPI_Op max_float, max_double, min_float, min_double;
static int live; /* communicators */
static char version[64];

static const char* error_text(int code) {
  static _Thread_local char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (code == kTimeout) return "the other ranks did not come in time";
  if (code == kFinalized) return "MPI_Finalize has been called";
  if (code == kForeign) return "this id is not the adaptor's, or a rank has another";
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
    case hetcclUint8:
    case hetcclFloat8e4m3:
    case hetcclFloat8e5m2:
      return MPI_UINT8_T;
    default:
      return MPI_DATATYPE_NULL;
  }
}

/* Of an element of `work`. Types that the adaptor does not know are moved as bytes. */
static size_t size_of(const hetcclLibraryWork* work) {
  const size_t end = offsetof(hetcclLibraryWork, element_bytes) + sizeof work->element_bytes;
  const MPI_Datatype type = type_of(work->type);
  int size = 0;
  if (type == MPI_DATATYPE_NULL)
    return work->size >= end && work->element_bytes > 0 ? work->element_bytes : 1;
  MPI_Type_size(type, &size);
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
  if (type_of(type) == MPI_DATATYPE_NULL) return 0;
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
  if (!done && __atomic_load_n(&live, __ATOMIC_RELAXED) == 0) MPI_Finalize();
}

/* Open MPI's plugins look for its symbols among the process's own. */
static void show_symbols(void) {
  Dl_info mpi;
  if (dladdr((const void*)&MPI_Init_thread, &mpi) != 0)
    dlopen(mpi.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

static int is_finalized(void) {
  int done = 0;
  MPI_Finalized(&done);
  return done;
}

static int score(void) {
  int started = 0, level = 0, size = 0;
  if (is_finalized()) return 0;
  MPI_Initialized(&started);
  if (!started) {
    show_symbols();
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) return 0;
    atexit(finalize);
  }
  MPI_Query_thread(&level);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (level < MPI_THREAD_MULTIPLE || size < 2) return 0;
  if (!started) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Op_create(take_max_float, 1, &max_float);
  MPI_Op_create(take_max_double, 1, &max_double);
  MPI_Op_create(take_min_float, 1, &min_float);
  MPI_Op_create(take_min_double, 1, &min_double);
  return 2 * HETCCL_OWN_SCORE;
}

/* --- clusters */

static int make_id(int n_ranks, void* out) {
  static int made;
  Id id = {.number = __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED)};
  (void)n_ranks;
  if (is_finalized()) return kFinalized;
  memcpy(id.magic, kMagic, sizeof id.magic);
  const int code = MPI_Comm_rank(MPI_COMM_WORLD, &id.leader);
  memcpy(out, &id, sizeof id);
  return code;
}

/* Of no other cluster that is being formed, where MPI has enough tags for all leaders. */
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

/* What the request uses must live on where this times out: MPI may write it later. */
static int wait_until(MPI_Request* request, int64_t end_ms) {
  int done = 0, code = MPI_SUCCESS;
  while ((code = MPI_Test(request, &done, MPI_STATUS_IGNORE)) == MPI_SUCCESS && !done) {
    if (now_ms() > end_ms) return kTimeout;
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  }
  return code;
}

/* Messages in which a cluster is formed, kept where one of them is given up. */
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

/* The leader learns each member's rank in the world, and tells all of them. Only a leader receives
 * what is sent with its own tag, and members receive from their leader. */
static int lead(Meeting* meeting, const Id* id, int n_ranks, int64_t end_ms) {
  const int bytes = n_ranks * (int)sizeof *meeting->members;
  for (int i = 1; i < n_ranks; ++i) {
    Hello* hello = &meeting->hello;
    const int code = receive(meeting, hello, sizeof *hello, MPI_ANY_SOURCE, tag_of(id), end_ms);
    if (code != MPI_SUCCESS) return code;
    if (memcmp(&hello->id, id, sizeof *id) != 0 || hello->rank < 1 || hello->rank >= n_ranks)
      return kForeign;
    meeting->members[hello->rank] = hello->world;
  }
  for (int i = 1; i < n_ranks; ++i) {
    const int code =
        send_to(meeting, meeting->members, bytes, meeting->members[i], tag_of(id), end_ms);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

static int follow(Meeting* meeting, const Id* id, int n_ranks, int rank, int64_t end_ms) {
  const int bytes = n_ranks * (int)sizeof *meeting->members;
  meeting->hello = (Hello){.id = *id, .rank = rank, .world = meeting->members[rank]};
  const int code =
      send_to(meeting, &meeting->hello, sizeof meeting->hello, id->leader, tag_of(id), end_ms);
  if (code != MPI_SUCCESS) return code;
  return receive(meeting, meeting->members, bytes, id->leader, tag_of(id), end_ms);
}

static int make_communicator(const int* members, int n_ranks, int tag, MPI_Comm* comm) {
  MPI_Group world, group;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, n_ranks, members, &group);
  const int code = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, comm);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return code;
}

static int join(const Id* id, int n_ranks, int rank, int64_t end_ms, MPI_Comm* comm) {
  Meeting* meeting = calloc(1, sizeof *meeting);
  if (meeting == NULL) return MPI_ERR_NO_MEM;
  meeting->members = calloc((size_t)n_ranks, sizeof *meeting->members);
  if (meeting->members == NULL) return MPI_ERR_NO_MEM;
  MPI_Comm_rank(MPI_COMM_WORLD, &meeting->members[rank]);
  int code =
      rank == 0 ? lead(meeting, id, n_ranks, end_ms) : follow(meeting, id, n_ranks, rank, end_ms);
  if (code != MPI_SUCCESS) return code; /* the meeting stays: see wait_until */
  code = make_communicator(meeting->members, n_ranks, tag_of(id), comm);
  free(meeting->members);
  free(meeting);
  return code;
}

static int init(const void* bytes, int n_ranks, int rank, int64_t timeout_ms, void** out) {
  Id id;
  memcpy(&id, bytes, sizeof id);
  if (is_finalized()) return kFinalized;
  if (memcmp(id.magic, kMagic, sizeof kMagic) != 0) return kForeign;
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

/* Calls that are under way keep their memory, and MPI their communicator: MPI_Finalize would wait
 * for other ranks, so it is not called by this adaptor then. */
static void destroy(void* communicator) {
  Cluster* cluster = communicator;
  if (cluster->n_under_way > 0 || is_finalized()) return;
  MPI_Comm_free(&cluster->comm);
  __atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
  free(cluster);
}

/* --- calls */

/* A part with memory for these bytes, which holds those of `in` if there is one. */
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

/* Begins `n` elements of one piece, that are at these places. */
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
