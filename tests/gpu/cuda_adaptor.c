/* NVIDIA's driver and NCCL as an adaptor, "nv": the table of hetccl/adaptor.h over real hardware,
 * with a library in stream order. hetccl's own "cuda" is what to use. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hetccl/adaptor.h"

#define DRIVER(X)                                                                      \
  X(cuInit, cuInit, (unsigned))                                                        \
  X(cuGetErrorString, cuGetErrorString, (int, const char**))                           \
  X(cuDeviceGetCount, cuDeviceGetCount, (int*))                                        \
  X(cuDeviceGet, cuDeviceGet, (int*, int))                                             \
  X(cuDeviceGetName, cuDeviceGetName, (char*, int, int))                               \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (char*, int, int))                       \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int*, int, int))                      \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void**, int))                 \
  X(cuCtxSetCurrent, cuCtxSetCurrent, (void*))                                         \
  X(cuCtxGetCurrent, cuCtxGetCurrent, (void**))                                        \
  X(cuCtxGetDevice, cuCtxGetDevice, (int*))                                            \
  X(cuMemAlloc, cuMemAlloc_v2, (void**, size_t))                                       \
  X(cuMemFree, cuMemFree_v2, (void*))                                                  \
  X(cuMemHostAlloc, cuMemHostAlloc, (void**, size_t, unsigned))                        \
  X(cuMemFreeHost, cuMemFreeHost, (void*))                                             \
  X(cuMemHostRegister, cuMemHostRegister_v2, (void*, size_t, unsigned))                \
  X(cuMemHostUnregister, cuMemHostUnregister, (void*))                                 \
  X(cuMemcpyAsync, cuMemcpyAsync, (void*, const void*, size_t, void*))                 \
  X(cuMemsetD8, cuMemsetD8_v2, (void*, unsigned char, size_t))                         \
  X(cuStreamCreate, cuStreamCreate, (void**, unsigned))                                \
  X(cuStreamDestroy, cuStreamDestroy_v2, (void*))                                      \
  X(cuStreamIsCapturing, cuStreamIsCapturing, (void*, int*))                           \
  X(cuEventCreate, cuEventCreate, (void**, unsigned))                                  \
  X(cuEventDestroy, cuEventDestroy_v2, (void*))                                        \
  X(cuEventRecord, cuEventRecord, (void*, void*))                                      \
  X(cuStreamWaitEvent, cuStreamWaitEvent, (void*, void*, unsigned))                    \
  X(cuStreamWaitValue32, cuStreamWaitValue32_v2, (void*, void*, uint32_t, unsigned))   \
  X(cuStreamWriteValue32, cuStreamWriteValue32_v2, (void*, void*, uint32_t, unsigned)) \
  X(cuLaunchHostFunc, cuLaunchHostFunc, (void*, void (*)(void*), void*))

typedef struct {
  char bytes[HETCCL_ADAPTOR_ID_BYTES];
} Id;

#define NCCL(X)                                                                         \
  X(ncclGetVersion, ncclGetVersion, (int*))                                             \
  X(ncclGetUniqueId, ncclGetUniqueId, (Id*))                                            \
  X(ncclCommInitRank, ncclCommInitRank, (void**, int, Id, int))                         \
  X(ncclCommAbort, ncclCommAbort, (void*))                                              \
  X(ncclCommGetAsyncError, ncclCommGetAsyncError, (void*, int*))                        \
  X(ncclGroupStart, ncclGroupStart, (void))                                             \
  X(ncclGroupEnd, ncclGroupEnd, (void))                                                 \
  X(ncclAllReduce, ncclAllReduce, (const void*, void*, size_t, int, int, void*, void*)) \
  X(ncclReduce, ncclReduce, (const void*, void*, size_t, int, int, int, void*, void*))  \
  X(ncclBroadcast, ncclBroadcast, (const void*, void*, size_t, int, int, void*, void*)) \
  X(ncclSend, ncclSend, (const void*, size_t, int, int, void*, void*))                  \
  X(ncclRecv, ncclRecv, (void*, size_t, int, int, void*, void*))

#define DECLARE(name, symbol, arguments) static int(*name) arguments;
DRIVER(DECLARE)
NCCL(DECLARE)

enum { kMostDevices = 64, kNcclCode = 1000000, kMajor = 75, kMinor = 76, kPatience = 2 };
enum { kNcclInvalidUsage = 5, kNcclInProgress = 7 };

static void* contexts[kMostDevices];
static int devices;
static char nccl_version[32];
static int has_nccl;

/* Also of what a group has enqueued. */
static const char* error_text(int code) {
  static _Thread_local char text[64];
  const char* words = NULL;
  if (code < kNcclCode && cuGetErrorString(code, &words) == 0) return words;
  snprintf(text, sizeof text, "NCCL: error %d", code - kNcclCode);
  return text;
}

static int nccl(int code) {
  return code == 0 ? 0 : kNcclCode + code;
}

static int count(int* found) {
  *found = devices;
  return 0;
}

static int describe(int device, hetcclDeviceDescription* description) {
  int handle = 0, major = 0, minor = 0;
  int failed = cuDeviceGet(&handle, device);
  if (!failed) failed = cuDeviceGetName(description->model, sizeof description->model, handle);
  if (!failed)
    failed = cuDeviceGetPCIBusId(description->bus_id, sizeof description->bus_id, handle);
  if (!failed) failed = cuDeviceGetAttribute(&major, kMajor, handle);
  if (!failed) failed = cuDeviceGetAttribute(&minor, kMinor, handle);
  snprintf(description->architecture, sizeof description->architecture, "sm_%d%d", major, minor);
  return failed;
}

static int use(int device) {
  if (device == -1) return cuCtxSetCurrent(NULL);
  if (device < 0 || device >= devices) return 101; /* CUDA_ERROR_INVALID_DEVICE */
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  int handle = 0, failed = 0;
  if (contexts[device] == NULL) {
    failed = cuDeviceGet(&handle, device);
    if (!failed) failed = cuDevicePrimaryCtxRetain(&contexts[device], handle);
  }
  pthread_mutex_unlock(&mutex);
  return failed ? failed : cuCtxSetCurrent(contexts[device]);
}

static int current(int* device) {
  void* context = NULL;
  *device = -1;
  if (cuCtxGetCurrent(&context) != 0 || context == NULL) return 0;
  return cuCtxGetDevice(device);
}

static int allocate(void** memory, size_t bytes) {
  return cuMemAlloc(memory, bytes);
}
static int free_memory(void* memory) {
  return cuMemFree(memory);
}
/* Portable, and mapped. */
static int allocate_pinned(void** memory, size_t bytes) {
  return cuMemHostAlloc(memory, bytes, 3);
}
static int free_pinned(void* memory) {
  return cuMemFreeHost(memory);
}
static int pin(void* memory, size_t bytes) {
  return cuMemHostRegister(memory, bytes, 3);
}
static int unpin(void* memory) {
  return cuMemHostUnregister(memory);
}
static int create_stream(void** stream) {
  return cuStreamCreate(stream, 1);
}
static int destroy_stream(void* stream) {
  return cuStreamDestroy(stream);
}
static int create_event(void** event) {
  return cuEventCreate(event, 2);
}
static int destroy_event(void* event) {
  return cuEventDestroy(event);
}
static int record(void* event, void* stream) {
  return cuEventRecord(event, stream);
}
static int wait(void* stream, void* event) {
  return cuStreamWaitEvent(stream, event, 0);
}
static int wait_word(void* stream, uint32_t* word, uint32_t value) {
  return cuStreamWaitValue32(stream, word, value, 0);
}
static int write_word(void* stream, uint32_t* word, uint32_t value) {
  return cuStreamWriteValue32(stream, word, value, 0);
}
static int copy(void* stream, void* to, const void* from, size_t bytes) {
  return cuMemcpyAsync(to, from, bytes, stream);
}
static int call_host(void* stream, void (*function)(void*), void* argument) {
  return cuLaunchHostFunc(stream, function, argument);
}
static int is_capturing(void* stream, int* capturing) {
  return cuStreamIsCapturing(stream, capturing);
}

/* A cluster's communicator. ncclCommAbort waits for NCCL's kernels, and frees `comm`: a thread of
 * its own calls it, once no call is inside NCCL. A call may wait there for a kernel that only the
 * abort ends: the thread leaves it kPatience seconds. */
typedef struct {
  void* comm;
  void* byte; /* of barriers */
  int rank, device;
  int aborted;
  pthread_mutex_t mutex; /* held by calls inside NCCL */
  pthread_t ender;
  int has_ender;
} Member;

static int nccl_reduces(hetcclDataType_t type, hetcclRedOp_t op) {
  const int is_float = type >= hetcclFloat16 && type <= hetcclBfloat16;
  return (int)type <= (int)hetcclBfloat16 &&
         ((int)op < (int)hetcclAvg || (op == hetcclAvg && is_float));
}

static int make_id(int n_ranks, void* id) {
  (void)n_ranks;
  return nccl(ncclGetUniqueId(id));
}

static int init(const void* id, int n_ranks, int rank, int64_t timeout_ms, void** made) {
  (void)timeout_ms;
  Member* member = calloc(1, sizeof *member);
  if (member == NULL) return 2; /* CUDA_ERROR_OUT_OF_MEMORY */
  Id whole;
  memcpy(&whole, id, sizeof whole);
  member->rank = rank;
  pthread_mutex_init(&member->mutex, NULL);
  int failed = current(&member->device);
  if (!failed) failed = cuMemAlloc(&member->byte, 1);
  if (!failed) failed = cuMemsetD8(member->byte, 0, 1);
  if (!failed) failed = nccl(ncclCommInitRank(&member->comm, n_ranks, whole, rank));
  if (failed) {
    if (member->byte != NULL) cuMemFree(member->byte);
    pthread_mutex_destroy(&member->mutex);
    free(member);
    return failed;
  }
  *made = member;
  return 0;
}

/* Data of types that NCCL has not moves as bytes. */
static size_t width_of(hetcclDataType_t type) {
  return (int)type <= (int)hetcclBfloat16 ? 0 : type == hetcclInt16 || type == hetcclUint16 ? 2 : 1;
}

static int start_piece(const Member* member, const hetcclLibraryWork* work, size_t i) {
  hetcclLibraryPiece moved = work->pieces[i];
  const hetcclLibraryPiece* piece = &moved;
  const int op = (int)work->op, width = (int)width_of(work->type);
  const int type = width ? 1 : (int)work->type;
  if (width) moved.count *= (size_t)width;
  if (piece->count == 0) return 0;
  if (work->call == hetcclLibraryAllReduce)
    return ncclAllReduce(piece->send, piece->recv, piece->count, type, op, member->comm,
                         work->stream);
  if (work->call == hetcclLibraryReduce)
    return ncclReduce(piece->send, piece->recv, piece->count, type, op, piece->root, member->comm,
                      work->stream);
  if (piece->receiver < 0)
    return ncclBroadcast(piece->send, piece->recv, piece->count, type, piece->root, member->comm,
                         work->stream);
  int failed = 0;
  if (member->rank == piece->root)
    failed = ncclSend(piece->send, piece->count, type, piece->receiver, member->comm, work->stream);
  if (!failed && member->rank == piece->receiver)
    failed = ncclRecv(piece->recv, piece->count, type, piece->root, member->comm, work->stream);
  return failed;
}

static int start_message(const Member* member, const hetcclLibraryWork* work, size_t i) {
  const hetcclLibraryMessage* message = &work->messages[i];
  const size_t width = width_of(work->type);
  const int type = width ? 1 : (int)work->type;
  const size_t count = width ? width * message->count : message->count;
  if (count == 0) return 0;
  return message->sends
             ? ncclSend(message->data, count, type, message->peer, member->comm, work->stream)
             : ncclRecv(message->data, count, type, message->peer, member->comm, work->stream);
}

static int enqueue(const Member* member, const hetcclLibraryWork* work) {
  if (work->call == hetcclLibraryBarrier)
    return ncclAllReduce(member->byte, member->byte, 1, 1, 0, member->comm, work->stream);
  int failed = ncclGroupStart();
  for (size_t i = 0; !failed && i < work->n_pieces; ++i) failed = start_piece(member, work, i);
  for (size_t i = 0; !failed && i < work->n_messages; ++i) failed = start_message(member, work, i);
  const int ended = ncclGroupEnd();
  return failed ? failed : ended;
}

static int is_aborted(const Member* member) {
  return __atomic_load_n(&member->aborted, __ATOMIC_ACQUIRE);
}

static int start(void* communicator, const hetcclLibraryWork* work, void** request) {
  (void)request;
  Member* member = communicator;
  if (is_aborted(member))
    return nccl(kNcclInvalidUsage); /* the abort may hold the mutex for long */
  pthread_mutex_lock(&member->mutex);
  const int failed = is_aborted(member) ? kNcclInvalidUsage : enqueue(member, work);
  pthread_mutex_unlock(&member->mutex);
  return nccl(failed);
}

static int test(void* communicator, void* request, int* done) {
  (void)request;
  Member* member = communicator;
  *done = 0;
  int code = 0;
  if (is_aborted(member) || pthread_mutex_trylock(&member->mutex) != 0) return 0;
  const int failed = is_aborted(member) ? 0 : ncclCommGetAsyncError(member->comm, &code);
  pthread_mutex_unlock(&member->mutex);
  return nccl(failed ? failed : code == kNcclInProgress ? 0 : code);
}

static void* end(void* communicator) {
  Member* member = communicator;
  struct timespec limit;
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += kPatience;
  const int is_free = pthread_mutex_timedlock(&member->mutex, &limit) == 0;
  use(member->device);
  ncclCommAbort(member->comm);
  cuMemFree(member->byte);
  if (is_free) pthread_mutex_unlock(&member->mutex);
  return NULL;
}

static void abort_member(void* communicator) {
  Member* member = communicator;
  if (__atomic_exchange_n(&member->aborted, 1, __ATOMIC_ACQ_REL)) return;
  member->has_ender = pthread_create(&member->ender, NULL, end, member) == 0;
  if (!member->has_ender) end(member);
}

/* Aborts, too: to finalize a communicator would wait for other ranks. hetccl calls it after `abort`
 * has returned, and while no other call is under way. */
static void destroy(void* communicator) {
  Member* member = communicator;
  abort_member(member);
  if (member->has_ender) pthread_join(member->ender, NULL);
  pthread_mutex_destroy(&member->mutex);
  free(member);
}

static int resolve(void* library, const char* name, void* call) {
  void* symbol = library == NULL ? NULL : dlsym(library, name);
  memcpy(call, &symbol, sizeof symbol);
  return symbol != NULL;
}
#define RESOLVE(name, symbol, arguments) found = found && resolve(library, #symbol, (void*)&name);

static void load(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  int found = 1, version = 0;
  DRIVER(RESOLVE)
  if (!found || cuInit(0) != 0 || cuDeviceGetCount(&devices) != 0) devices = 0;
  if (devices > kMostDevices) devices = kMostDevices;
  const char* path = getenv("HETCCL_NCCL_LIBRARY");
  library = dlopen(path != NULL ? path : "libnccl.so.2", RTLD_NOW);
  NCCL(RESOLVE)
  has_nccl = found && ncclGetVersion(&version) == 0;
  snprintf(nccl_version, sizeof nccl_version, "%d", version);
}

__attribute__((visibility("default"))) const hetcclAdaptorTable* hetcclAdaptor(uint32_t abi) {
  static pthread_once_t loaded = PTHREAD_ONCE_INIT;
  pthread_once(&loaded, load);
  static const hetcclDeviceAdaptor device = {.size = sizeof device,
                                             .name = "nv",
                                             .version = "driver",
                                             .error_text = error_text,
                                             .count = count,
                                             .describe = describe,
                                             .use = use,
                                             .current = current,
                                             .allocate = allocate,
                                             .free = free_memory,
                                             .allocate_pinned = allocate_pinned,
                                             .free_pinned = free_pinned,
                                             .pin = pin,
                                             .unpin = unpin,
                                             .create_stream = create_stream,
                                             .destroy_stream = destroy_stream,
                                             .create_event = create_event,
                                             .destroy_event = destroy_event,
                                             .record = record,
                                             .wait = wait,
                                             .wait_word = wait_word,
                                             .write_word = write_word,
                                             .copy = copy,
                                             .call_host = call_host,
                                             .is_capturing = is_capturing};
  static const hetcclLibraryAdaptor library = {
      .size = sizeof library,
      .name = "nv_nccl",
      .version = nccl_version,
      .capabilities = HETCCL_LIBRARY_JOINS_HOSTS | HETCCL_LIBRARY_JOINS_ARCHITECTURES |
                      HETCCL_LIBRARY_EXCHANGES | HETCCL_LIBRARY_SENDS,
      .error_text = error_text,
      .reduces = nccl_reduces,
      .make_id = make_id,
      .init = init,
      .start = start,
      .test = test,
      .destroy = destroy,
      .device = "nv",
      .abort = abort_member};
  static hetcclAdaptorTable table = {
      .size = sizeof table, .abi = HETCCL_ADAPTOR_ABI, .device = &device};
  if (has_nccl) table.library = &library;
  return abi == HETCCL_ADAPTOR_ABI ? &table : NULL;
}
