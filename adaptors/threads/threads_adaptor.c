/* A device adaptor, as an example: devices whose memory is the host's, and whose streams are
 * threads. It shows what hetccl asks of a vendor's runtime, and runs everywhere.
 *
 *   cc -std=c11 -O2 -shared -fPIC -fvisibility=hidden -I<hetccl's include> threads_adaptor.c
 *      -o libthreads_adaptor.so -lpthread
 *   HETCCL_ADAPTORS=$PWD/libthreads_adaptor.so hetccl selftest --devices threads:0,threads:1,host
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "hetccl/adaptor.h"

enum { kDevices = 4 };

/* A point in a stream, reached once that many of its marks have been passed. */
typedef struct {
  atomic_uint marked, passed;
  atomic_int users; /* the handle, and enqueued work */
} Event;

typedef enum { kCopy, kWaitWord, kWriteWord, kRecord, kWait, kCallHost, kEnd, kReduce } Kind;

typedef struct Task {
  struct Task* next;
  Kind kind;
  void* to;
  const void* from;
  size_t bytes;
  _Atomic uint32_t* word;
  uint32_t value;
  Event* event;
  void (*function)(void*);
  hetcclDeviceReduction reduction;
  const void* sources[16];
} Task;

typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t filled;
  Task *first, *last;
} Stream;

static _Thread_local int current_device = -1;
static Stream* default_streams[kDevices];
static pthread_once_t defaults_made = PTHREAD_ONCE_INIT;

static void forget_event(Event* event) {
  if (atomic_fetch_sub(&event->users, 1) == 1) free(event);
}

/* Pauses while waiting for another thread; a real device would have its own way. */
static void pause_for(unsigned turns) {
  if (turns > 64) sched_yield();
}

#ifdef THREADS_REDUCE
#define REDUCE(Type)                                                         \
  static void reduce_##Type(const hetcclDeviceReduction* r) {                \
    Type* result = r->result;                                                \
    for (size_t i = 0; i < r->count; ++i) {                                  \
      Type sum = ((const Type*)r->sources[0])[i];                            \
      for (size_t s = 1; s < r->n_sources; ++s) {                            \
        const Type value = ((const Type*)r->sources[s])[i];                  \
        if (r->op == hetcclMax)                                              \
          sum = sum != sum || sum > value ? sum : value; /* NaN stays NaN */ \
        else if (r->op == hetcclMin)                                         \
          sum = sum != sum || sum < value ? sum : value;                     \
        else if (r->op == hetcclProd)                                        \
          sum = (Type)(sum * value);                                         \
        else                                                                 \
          sum = (Type)(sum + value);                                         \
      }                                                                      \
      result[i] = r->op == hetcclAvg ? (Type)(sum / (Type)r->divisor) : sum; \
    }                                                                        \
  }
REDUCE(float)
REDUCE(double)
REDUCE(uint32_t)
REDUCE(uint64_t)

static int reduces(hetcclDataType_t type, hetcclRedOp_t op) {
  const int is_float = type == hetcclFloat32 || type == hetcclFloat64;
  const int is_integer = type == hetcclUint32 || type == hetcclUint64;
  const int is_common = op == hetcclSum || op == hetcclProd || op == hetcclMax || op == hetcclMin;
  return (is_float || is_integer) && (is_common || op == hetcclAvg);
}

static void reduce_now(const hetcclDeviceReduction* reduction) {
  if (reduction->type == hetcclFloat32) reduce_float(reduction);
  if (reduction->type == hetcclFloat64) reduce_double(reduction);
  if (reduction->type == hetcclUint32) reduce_uint32_t(reduction);
  if (reduction->type == hetcclUint64) reduce_uint64_t(reduction);
}
#endif

static void run(Task* task) {
  switch (task->kind) {
    case kCopy:
      memmove(task->to, task->from, task->bytes);
      break;
    case kWaitWord:
      for (unsigned turns = 0;
           (int32_t)(atomic_load_explicit(task->word, memory_order_acquire) - task->value) < 0;
           ++turns)
        pause_for(turns);
      break;
    case kWriteWord:
      atomic_store_explicit(task->word, task->value, memory_order_release);
      break;
    case kRecord:
      atomic_fetch_add(&task->event->passed, 1);
      forget_event(task->event);
      break;
    case kWait:
      for (unsigned turns = 0; (int)(atomic_load(&task->event->passed) - task->value) < 0; ++turns)
        pause_for(turns);
      forget_event(task->event);
      break;
    case kCallHost:
      task->function(task->to);
      break;
#ifdef THREADS_REDUCE
    case kReduce:
      task->reduction.sources = task->sources;
      reduce_now(&task->reduction);
      break;
#endif
    default: /* kEnd */
      break;
  }
}

static void* run_stream(void* argument) {
  Stream* stream = argument;
  for (;;) {
    pthread_mutex_lock(&stream->mutex);
    while (stream->first == NULL) pthread_cond_wait(&stream->filled, &stream->mutex);
    Task* task = stream->first;
    stream->first = task->next;
    pthread_mutex_unlock(&stream->mutex);
    run(task);
    const int ends = task->kind == kEnd;
    free(task);
    if (ends) break;
  }
  pthread_cond_destroy(&stream->filled);
  pthread_mutex_destroy(&stream->mutex);
  free(stream);
  return NULL;
}

static int create_stream(void** made) {
  Stream* stream = calloc(1, sizeof *stream);
  if (stream == NULL) return ENOMEM;
  pthread_mutex_init(&stream->mutex, NULL);
  pthread_cond_init(&stream->filled, NULL);
  pthread_t thread;
  const int failed = pthread_create(&thread, NULL, run_stream, stream);
  if (failed != 0) {
    free(stream);
    return failed;
  }
  pthread_detach(thread);
  *made = stream;
  return 0;
}

static void make_defaults(void) {
  for (int i = 0; i < kDevices; ++i) {
    void* made = NULL;
    if (create_stream(&made) == 0) default_streams[i] = made;
  }
}

static Stream* stream_of(void* given) {
  if (given != NULL) return given;
  pthread_once(&defaults_made, make_defaults);
  return current_device < 0 ? NULL : default_streams[current_device];
}

static int enqueue(void* given, Task what) {
  Stream* stream = stream_of(given);
  Task* task = malloc(sizeof *task);
  if (stream == NULL || task == NULL) {
    free(task);
    return stream == NULL ? EINVAL : ENOMEM;
  }
  *task = what;
  task->next = NULL;
  pthread_mutex_lock(&stream->mutex);
  if (stream->first == NULL)
    stream->first = task;
  else
    stream->last->next = task;
  stream->last = task;
  pthread_cond_signal(&stream->filled);
  pthread_mutex_unlock(&stream->mutex);
  return 0;
}

static const char* error_text(int code) {
  return strerror(code);
}

static int count(int* devices) {
  *devices = kDevices;
  return 0;
}

static int describe(int device, hetcclDeviceDescription* description) {
  if (device < 0 || device >= kDevices) return EINVAL;
  strcpy(description->model, "threads of this process");
  strcpy(description->architecture, "threads");
  return 0;
}

static int use(int device) {
  if (device < -1 || device >= kDevices) return EINVAL;
  current_device = device;
  return 0;
}

static int current(int* device) {
  *device = current_device;
  return 0;
}

static int allocate(void** memory, size_t bytes) {
  return posix_memalign(memory, 256, bytes);
}

static int free_memory(void* memory) {
  free(memory);
  return 0;
}

static int pin(void* memory, size_t bytes) {
  (void)memory, (void)bytes; /* nothing to do: all memory here is the host's */
  return 0;
}

static int unpin(void* memory) {
  (void)memory;
  return 0;
}

static int destroy_stream(void* stream) {
  return enqueue(stream, (Task){.kind = kEnd});
}

static int create_event(void** made) {
  Event* event = calloc(1, sizeof *event);
  if (event == NULL) return ENOMEM;
  atomic_store(&event->users, 1);
  *made = event;
  return 0;
}

static int destroy_event(void* event) {
  forget_event(event);
  return 0;
}

static int record(void* event, void* stream) {
  Event* it = event;
  atomic_fetch_add(&it->users, 1);
  atomic_fetch_add(&it->marked, 1);
  const int failed = enqueue(stream, (Task){.kind = kRecord, .event = it});
  if (failed != 0) {
    atomic_fetch_add(&it->passed, 1);
    forget_event(it);
  }
  return failed;
}

static int wait(void* stream, void* event) {
  Event* it = event;
  atomic_fetch_add(&it->users, 1);
  const int failed =
      enqueue(stream, (Task){.kind = kWait, .event = it, .value = atomic_load(&it->marked)});
  if (failed != 0) forget_event(it);
  return failed;
}

static int wait_word(void* stream, uint32_t* word, uint32_t value) {
  return enqueue(stream,
                 (Task){.kind = kWaitWord, .word = (_Atomic uint32_t*)word, .value = value});
}

static int write_word(void* stream, uint32_t* word, uint32_t value) {
  return enqueue(stream,
                 (Task){.kind = kWriteWord, .word = (_Atomic uint32_t*)word, .value = value});
}

static int copy(void* stream, void* to, const void* from, size_t bytes) {
  return enqueue(stream, (Task){.kind = kCopy, .to = to, .from = from, .bytes = bytes});
}

static int call_host(void* stream, void (*function)(void*), void* argument) {
  return enqueue(stream, (Task){.kind = kCallHost, .function = function, .to = argument});
}

#ifdef THREADS_REDUCE
static int reduce(void* stream, const hetcclDeviceReduction* reduction) {
  if (reduction->n_sources < 1 || reduction->n_sources > 16) return EINVAL;
  Task task = {.kind = kReduce, .reduction = *reduction};
  memcpy(task.sources, reduction->sources, reduction->n_sources * sizeof *task.sources);
  return enqueue(stream, task);
}
#endif

__attribute__((visibility("default"))) const hetcclAdaptorTable* hetcclAdaptor(uint32_t abi) {
  static const hetcclDeviceAdaptor device = {
      .size = sizeof device,
      .name = "threads",
      .version = "1",
      .error_text = error_text,
      .count = count,
      .describe = describe,
      .use = use,
      .current = current,
      .allocate = allocate,
      .free = free_memory,
      .allocate_pinned = allocate,
      .free_pinned = free_memory,
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
#ifdef THREADS_REDUCE /* otherwise hosts reduce all types for the device */
      .reduces = reduces,
      .reduce = reduce,
#endif
  };
  static const hetcclAdaptorTable table = {
      .size = sizeof table, .abi = HETCCL_ADAPTOR_ABI, .device = &device};
  return abi == HETCCL_ADAPTOR_ABI ? &table : NULL;
}
