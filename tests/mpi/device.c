/* An MPI program that passes memory of several kinds and knows nothing of hetccl.
 * device KINDS [COUNT...]: rank r takes memory of kind KINDS[r % strlen(KINDS)], turned by one with
 * each round if KINDS ends with "+": d a GPU's by CUDA, m managed by CUDA, r a GPU's by HIP (ROCm),
 * n managed by HIP, h the host's. Ranks are spread over the GPUs in their order. With
 * EXPECT_DEVICE_MEMORY the MPI must say that it takes the memory of those kinds. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;
struct runtime {
  const char *kinds, *library, *query;
  int (*copy_in)(address, const void*, size_t), (*copy_out)(void*, address, size_t);
  int (*allocate)(address*, size_t), (*allocate_managed)(address*, size_t, unsigned);
  int (*free_memory)(address);
};
static struct runtime cuda = {"dm", "libcuda.so.1", "MPIX_Query_cuda_support"};
static struct runtime hip = {"rn", "libamdhip64.so.6", "MPIX_Query_rocm_support"};
static int rank, size, checks;

static void stop(const char* what, int at, int got, int wanted) {
  fprintf(stderr, "rank %d: %s: element %d is %d and not %d\n", rank, what, at, got, wanted);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void* load(const struct runtime* of) {
  void* library = dlopen(of->library, RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    stop("no runtime", 0, 0, 0);
  }
  return library;
}

static void open_cuda(void) {
  void* library = load(&cuda);
  int (*init)(unsigned) = dlsym(library, "cuInit");
  int (*count)(int*) = dlsym(library, "cuDeviceGetCount");
  int (*retain)(void**, int) = dlsym(library, "cuDevicePrimaryCtxRetain");
  int (*set)(void*) = dlsym(library, "cuCtxSetCurrent");
  cuda.copy_in = dlsym(library, "cuMemcpyHtoD_v2");
  cuda.copy_out = dlsym(library, "cuMemcpyDtoH_v2");
  cuda.allocate = dlsym(library, "cuMemAlloc_v2");
  cuda.allocate_managed = dlsym(library, "cuMemAllocManaged");
  cuda.free_memory = dlsym(library, "cuMemFree_v2");
  int gpus = 0;
  void* context;
  if (init(0) || count(&gpus) || retain(&context, rank * gpus / size) || set(context))
    stop("no GPU", 0, 0, 0);
}

static int (*hip_copy)(address, address, size_t, int);
static int copy_in_by_hip(address to, const void* from, size_t bytes) {
  return hip_copy(to, (address)from, bytes, 1);
}
static int copy_out_by_hip(void* to, address from, size_t bytes) {
  return hip_copy((address)to, from, bytes, 2);
}

static void open_hip(void) {
  void* library = load(&hip);
  int (*count)(int*) = dlsym(library, "hipGetDeviceCount");
  int (*set)(int) = dlsym(library, "hipSetDevice");
  hip_copy = dlsym(library, "hipMemcpy");
  hip.copy_in = copy_in_by_hip, hip.copy_out = copy_out_by_hip;
  hip.allocate = dlsym(library, "hipMalloc");
  hip.allocate_managed = dlsym(library, "hipMallocManaged");
  hip.free_memory = dlsym(library, "hipFree");
  int gpus = 0;
  if (count(&gpus) || set(rank * gpus / size)) stop("no GPU", 0, 0, 0);
}

static struct runtime* runtime_of(char kind) {
  struct runtime* of = strchr(cuda.kinds, kind) ? &cuda : strchr(hip.kinds, kind) ? &hip : NULL;
  if (of == NULL || of->allocate != NULL) return of;
  of == &cuda ? open_cuda() : open_hip();
  int (*query)(void) = dlsym(RTLD_DEFAULT, of->query);
  if (getenv("EXPECT_DEVICE_MEMORY") != NULL && (query == NULL || query() != 1))
    stop(of->query, 0, 0, 1);
  return of;
}

struct buffer {
  char kind;
  size_t bytes;
  void* at;
};

static struct buffer take(char kind, size_t elements) {
  struct buffer b = {kind, elements * sizeof(int) + 64, NULL};
  const struct runtime* of = runtime_of(kind);
  address made = 0;
  if (of == NULL) {
    b.at = malloc(b.bytes);
  } else if (kind == of->kinds[0] ? of->allocate(&made, b.bytes)
                                  : of->allocate_managed(&made, b.bytes, 1)) {
    stop("no memory", 0, 0, 0);
  } else {
    b.at = (void*)made;
  }
  return b;
}
static void give(struct buffer b) {
  b.kind == 'h' ? free(b.at) : (void)runtime_of(b.kind)->free_memory((address)b.at);
}
static void put(struct buffer b, const int* from, size_t n) {
  if (strchr("dr", b.kind)) runtime_of(b.kind)->copy_in((address)b.at, from, n * sizeof(int));
  else memcpy(b.at, from, n * sizeof(int));
}
static void get(int* to, struct buffer b, size_t n) {
  if (strchr("dr", b.kind)) runtime_of(b.kind)->copy_out(to, (address)b.at, n * sizeof(int));
  else memcpy(to, b.at, n * sizeof(int));
}

static int value(int r, int i) { return r * 1000003 + i * 7 + 1; }
static int block(int from, int to, int i) { return from * 1000003 + to * 10007 + i + 1; }
static int* shadow;

#define EXPECT(what, b, n, expected)                                       \
  do {                                                                     \
    get(shadow, b, (size_t)(n));                                           \
    for (int i = 0; i < (int)(n); ++i)                                     \
      if (shadow[i] != (expected)) stop(what, i, shadow[i], expected);     \
    ++checks;                                                              \
  } while (0)

static int sum_of_values(int i) {
  unsigned sum = 0;
  for (int r = 0; r < size; ++r) sum += (unsigned)value(r, i);
  return (int)sum;
}

static void collectives(struct buffer in, struct buffer out, int n) {
  const int root = n % size;
  MPI_Request requests[2];
  for (int i = 0; i < n; ++i) shadow[i] = value(rank, i);
  put(in, shadow, n);
  MPI_Allreduce(in.at, out.at, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT("allreduce", out, n, sum_of_values(i));
  for (int i = 0; i < n; ++i) shadow[i] = value(rank, i);
  put(out, shadow, n);
  MPI_Allreduce(MPI_IN_PLACE, out.at, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT("allreduce in place", out, n, sum_of_values(i));
  MPI_Reduce(in.at, out.at, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
  if (rank == root) EXPECT("reduce", out, n, sum_of_values(i));
  MPI_Iallreduce(in.at, out.at, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
  MPI_Wait(requests, MPI_STATUS_IGNORE);
  EXPECT("iallreduce", out, n, sum_of_values(i));
  MPI_Allgather(in.at, n, MPI_INT, out.at, n, MPI_INT, MPI_COMM_WORLD);
  EXPECT("allgather", out, n * size, value(i / n, i % n));
  MPI_Gather(in.at, n, MPI_INT, out.at, n, MPI_INT, root, MPI_COMM_WORLD);
  if (rank == root) EXPECT("gather", out, n * size, value(i / n, i % n));
  for (int i = 0; i < n; ++i) shadow[i] = value(rank, i);
  put(out, shadow, n);
  MPI_Bcast(out.at, n, MPI_INT, root, MPI_COMM_WORLD);
  EXPECT("bcast", out, n, value(root, i));

  for (int i = 0; i < n * size; ++i) shadow[i] = block(rank, i / n, i % n);
  put(in, shadow, (size_t)n * size);
  MPI_Alltoall(in.at, n, MPI_INT, out.at, n, MPI_INT, MPI_COMM_WORLD);
  EXPECT("alltoall", out, n * size, block(i / n, rank, i % n));
  MPI_Scatter(in.at, n, MPI_INT, out.at, n, MPI_INT, root, MPI_COMM_WORLD);
  EXPECT("scatter", out, n, block(root, rank, i));
  MPI_Reduce_scatter_block(in.at, out.at, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  get(shadow, out, n);
  for (int i = 0; i < n; ++i) {
    unsigned sum = 0;
    for (int r = 0; r < size; ++r) sum += (unsigned)block(r, rank, i);
    if (shadow[i] != (int)sum) stop("reduce_scatter_block", i, shadow[i], (int)sum);
  }
  int *counts = malloc(sizeof(int) * size), *places = malloc(sizeof(int) * size);
  for (int r = 0; r < size; ++r) counts[r] = n - r % 2, places[r] = (size - 1 - r) * n;
  MPI_Allgatherv(in.at, counts[rank], MPI_INT, out.at, counts, places, MPI_INT, MPI_COMM_WORLD);
  get(shadow, out, (size_t)n * size);
  for (int r = 0; r < size; ++r)
    for (int i = 0; i < counts[r]; ++i)
      if (shadow[places[r] + i] != block(r, 0, i))
        if (i < n) stop("allgatherv", places[r] + i, shadow[places[r] + i], block(r, 0, i));
  free(counts), free(places);
}

/* The first data with gaps, in a kind of call that was made without gaps before. */
static void data_with_gaps(struct buffer out, int n) {
  const int root = n % size;
  MPI_Datatype every_second;
  MPI_Type_vector(n, 1, 2, MPI_INT, &every_second);
  MPI_Type_commit(&every_second);
  for (int i = 0; i < 2 * n; ++i) shadow[i] = value(rank, i);
  put(out, shadow, 2 * (size_t)n);
  MPI_Bcast(out.at, 1, every_second, root, MPI_COMM_WORLD);
  EXPECT("bcast with gaps", out, 2 * n, value(i % 2 == 0 ? root : rank, i));
  MPI_Type_free(&every_second);
}

/* Sums that vendors' libraries lack. */
static void other_sums(struct buffer in, struct buffer out, int n) {
  int wanted = 0;
  for (int r = 0; r < size; ++r) wanted |= 1 << r;
  for (int i = 0; i < n; ++i) shadow[i] = 1 << rank | i << 8;
  put(in, shadow, n);
  MPI_Allreduce(in.at, out.at, n, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
  EXPECT("a bitwise or", out, n, wanted | i << 8);
  for (int i = 0; i < n; ++i) shadow[i] = (rank + 1) << 16 | (i & 0xff);
  put(in, shadow, n);
  MPI_Allreduce(in.at, out.at, 2 * n, MPI_SHORT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT("a sum of shorts", out, n, size * (size + 1) / 2 << 16 | size * (i & 0xff));
}

/* The even ranks are one group, the odd ones the other. */
static void between_groups(struct buffer in, struct buffer out, int n) {
  if (size < 2) return;
  const int odd = rank % 2;
  MPI_Comm group, both;
  MPI_Comm_split(MPI_COMM_WORLD, odd, rank, &group);
  MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, 1 - odd, 12, &both);
  for (int i = 0; i < n; ++i) shadow[i] = value(rank, i);
  put(in, shadow, n), put(out, shadow, n);
  MPI_Bcast(out.at, n, MPI_INT, !odd ? 0 : rank == 1 ? MPI_ROOT : MPI_PROC_NULL, both);
  EXPECT("bcast to the other group", out, n, value(odd ? rank : 1, i));
  MPI_Allreduce(in.at, out.at, n, MPI_INT, MPI_SUM, both);
  get(shadow, out, n);
  for (int i = 0; i < n; ++i) {
    unsigned sum = 0;
    for (int r = 1 - odd; r < size; r += 2) sum += (unsigned)value(r, i);
    if (shadow[i] != (int)sum) stop("allreduce of the other group", i, shadow[i], (int)sum);
  }
  checks += 2;
  MPI_Comm_free(&both), MPI_Comm_free(&group);
}

static void persistent_calls(struct buffer in, struct buffer out, int n) {
#if MPI_VERSION >= 4 || OMPI_MAJOR_VERSION >= 5
  MPI_Request requests[2];
  MPI_Allreduce_init(in.at, out.at, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                     &requests[0]);
  char* const second = (char*)out.at + (size_t)n * sizeof(int);
  MPI_Bcast_init(second, n, MPI_INT, n % size, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 0; i < n; ++i) shadow[i] = value(rank, i + turn);
    put(in, shadow, n);
    for (int i = 0; i < 2 * n; ++i) shadow[i] = i < n ? -1 : value(rank + turn, i);
    put(out, shadow, 2 * (size_t)n);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    EXPECT("persistent", out, 2 * n, i < n ? sum_of_values(i + turn) : value(n % size + turn, i));
  }
  MPI_Request_free(&requests[0]), MPI_Request_free(&requests[1]);
#else
  (void)in, (void)out, (void)n;
#endif
}

/* Nobody waits for it. */
static void message_that_is_let_go(struct buffer in, struct buffer out, int n) {
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  MPI_Request request;
  for (int i = 0; i < n; ++i) shadow[i] = value(rank, i + 5);
  put(in, shadow, n);
  MPI_Isend(in.at, n, MPI_INT, next, 31, MPI_COMM_WORLD, &request);
  MPI_Request_free(&request);
  MPI_Recv(out.at, n, MPI_INT, last, 31, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  EXPECT("a message that is let go", out, n, value(last, i + 5));
  MPI_Barrier(MPI_COMM_WORLD); /* all have theirs, so the buffers may change */
}

static void message_that_never_comes(struct buffer out, int n) {
  MPI_Request request;
  MPI_Status status;
  int cancelled = 0;
  MPI_Irecv(out.at, n, MPI_INT, (rank + 1) % size, 99, MPI_COMM_WORLD, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &cancelled);
  if (!cancelled) stop("a receive that is cancelled", 0, cancelled, 1);
  ++checks;
}

static void messages(struct buffer in, struct buffer out, int n) {
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  MPI_Request requests[2];
  MPI_Status status, statuses[2];
  int received = -1;
  for (int i = 0; i < n; ++i) shadow[i] = value(rank, i);
  put(in, shadow, n);
  MPI_Sendrecv(in.at, n, MPI_INT, next, 4, out.at, n, MPI_INT, last, 4, MPI_COMM_WORLD, &status);
  EXPECT("sendrecv", out, n, value(last, i));
  if (status.MPI_SOURCE != last) stop("source of sendrecv", 0, status.MPI_SOURCE, last);
  memset(shadow, 0, sizeof(int) * (size_t)n);
  put(out, shadow, n);
  MPI_Irecv(out.at, n + 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(in.at, n, MPI_INT, next, 7, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, statuses);
  EXPECT("irecv", out, n, value(last, i));
  MPI_Get_count(&statuses[0], MPI_INT, &received);
  if (received != n) stop("count of irecv", 0, received, n);
  if (statuses[0].MPI_SOURCE != last || statuses[0].MPI_TAG != 7)
    stop("source and tag of irecv", 0, statuses[0].MPI_SOURCE, last);
  if (rank % 2 == 0 && next != rank && size % 2 == 0) {
    MPI_Send(in.at, n, MPI_INT, next, 1, MPI_COMM_WORLD);
  } else if (size % 2 == 0) {
    MPI_Recv(out.at, n, MPI_INT, last, 1, MPI_COMM_WORLD, &status);
    EXPECT("recv", out, n, value(last, i));
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
  static const int usual[] = {1, 1000, 30000, 300000};
  const char* kinds = argc > 1 ? argv[1] : "d";
  const int turns = strchr(kinds, '+') != NULL, n_kinds = (int)strlen(kinds) - turns;
  const int rounds = argc > 2 ? argc - 2 : 4;
  for (int round = 0; round < 2 * rounds; ++round) {
    const int n = argc > 2 ? atoi(argv[2 + round % rounds]) : usual[round % rounds];
    const char kind = kinds[(rank + (turns ? round : 0)) % n_kinds];
    shadow = malloc(sizeof(int) * (size_t)n * size + 64);
    struct buffer in = take(kind, (size_t)n * size), out = take(kind, (size_t)n * size);
    collectives(in, out, n);
    data_with_gaps(out, n);
    other_sums(in, out, n);
    between_groups(in, out, n);
    persistent_calls(in, out, n);
    messages(in, out, n);
    message_that_never_comes(out, n);
    message_that_is_let_go(in, out, n);
    give(in), give(out), free(shadow);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("ok %s %d checks\n", kinds, checks);
  MPI_Finalize();
  return 0;
}
