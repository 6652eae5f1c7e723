/* An MPI program that knows nothing of hetccl: every collective in every form, with values checked.
 * values [loose] [COUNT...]: prints "ok" and the number of checks on rank 0, or ends with the first
 * that is wrong. "loose": with what MPI allows and Intel MPI 2021.18 cannot do by itself. Persistent
 * calls are left out where the MPI has none. */
#define _GNU_SOURCE
#include <complex.h>
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, size, checks;
static MPI_Comm comm;

enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };
static const char* const form_names[] = {"blocking", "nonblocking", "persistent"};

static void clear(void);

static void fail(const char* what, int form, int count, int place, double got, double wanted) {
  fprintf(stderr, "rank %d of %d: %s, %s, %d elements: element %d is %g and not %g\n", rank, size,
          what, form_names[form], count, place, got, wanted);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void check(int ok, const char* what, int form, int count, int place, double got,
                  double wanted) {
  if (!ok) fail(what, form, count, place, got, wanted);
}

/* Persistent calls run twice; of one rank, Intel MPI's gather does nothing the second time. */
#if MPI_VERSION >= 4 || OMPI_MAJOR_VERSION >= 5
#define MAKE_PERSISTENT(name, ...)                              \
  do {                                                          \
    MPI_##name##_init(__VA_ARGS__, MPI_INFO_NULL, &request);    \
    for (int turn = 0; turn < 2; ++turn) {                      \
      if (size > 1) clear();                                    \
      prepare();                                                \
      MPI_Start(&request);                                      \
      MPI_Wait(&request, MPI_STATUS_IGNORE);                    \
    }                                                           \
    MPI_Request_free(&request);                                 \
  } while (0)
#else
#define MAKE_PERSISTENT(name, ...) MPI_##name(__VA_ARGS__)
#endif

#define MAKE(name, iname, ...)                      \
  do {                                              \
    MPI_Request request;                            \
    ++checks;                                       \
    if (form == BLOCKING) {                         \
      MPI_##name(__VA_ARGS__);                      \
    } else if (form == NONBLOCKING) {               \
      MPI_I##iname(__VA_ARGS__, &request);          \
      MPI_Wait(&request, MPI_STATUS_IGNORE);        \
    } else {                                        \
      MAKE_PERSISTENT(name, __VA_ARGS__);           \
    }                                               \
  } while (0)

static int *in, *out;     /* of `count` elements for each rank */
static int count, in_place;

static int value(int of_rank, int i) { return of_rank * 1000003 + i * 7 + 1; }
static int block_value(int from, int to, int i) { return from * 1000003 + to * 10007 + i + 1; }

static void fill_own(int* at) {
  for (int i = 0; i < count; ++i) at[i] = value(rank, i);
}
static void fill_blocks(int* at) {
  for (int r = 0; r < size; ++r)
    for (int i = 0; i < count; ++i) at[(size_t)r * count + i] = block_value(rank, r, i);
}
static void clear(void) { if (out) memset(out, 0xee, sizeof(int) * (size_t)count * size + 64); }

static int sum_of_values(int i) {
  unsigned sum = 0;
  for (int r = 0; r < size; ++r) sum += (unsigned)value(r, i);
  return (int)sum;
}
static int sum_of_blocks(int to, int i) {
  unsigned sum = 0;
  for (int r = 0; r < size; ++r) sum += (unsigned)block_value(r, to, i);
  return (int)sum;
}

#define EXPECT(what, n, array, expected)                                              \
  for (int i = 0; i < (n); ++i)                                                       \
  check((array)[i] == (expected), what, form, count, i, (array)[i], (double)(expected))

static void prepare_none(void) {}
/* Not called if the MPI has no persistent calls. */
#define PREPARE_NOTHING void (*prepare)(void) = prepare_none; (void)prepare
static void prepare_out_own(void) { if (in_place) fill_own(out); }
static void prepare_out_blocks(void) { if (in_place) fill_blocks(out); }
static void prepare_out_mine(void) {
  if (in_place) fill_own(out + (size_t)rank * count);
}

static void all_reduce(int form) {
  void (*prepare)(void) = prepare_out_own;
  fill_own(in), clear(), prepare();
  MAKE(Allreduce, allreduce, in_place ? MPI_IN_PLACE : in, out, count, MPI_INT, MPI_SUM, comm);
  EXPECT("allreduce", count, out, sum_of_values(i));
}

static void reduce(int form, int root) {
  void (*prepare)(void) = prepare_out_own;
  fill_own(in), clear();
  if (rank == root) prepare();
  const int mine = in_place && rank == root;
  if (form == PERSISTENT && in_place && rank != root) prepare = prepare_none;
  MAKE(Reduce, reduce, mine ? MPI_IN_PLACE : in, out, count, MPI_INT, MPI_SUM, root, comm);
  if (rank == root) EXPECT("reduce", count, out, sum_of_values(i));
}

static int bcast_root;
static void prepare_bcast(void) {
  clear();
  if (rank == bcast_root) fill_own(out);
}
static void bcast(int form, int root) {
  void (*prepare)(void) = prepare_bcast;
  bcast_root = root;
  prepare();
  MAKE(Bcast, bcast, out, count, MPI_INT, root, comm);
  EXPECT("bcast", count, out, value(root, i));
}

static void all_gather(int form) {
  void (*prepare)(void) = prepare_out_mine;
  fill_own(in), clear(), prepare();
  MAKE(Allgather, allgather, in_place ? MPI_IN_PLACE : in, count, MPI_INT, out, count, MPI_INT,
       comm);
  for (int r = 0; r < size; ++r)
    EXPECT("allgather", count, out + (size_t)r * count, value(r, i));
}

/* Rank r has count * (r + 1) / size elements, and blocks lie in reverse order. */
static int *lengths, *places, *from_lengths, *from_places;
static int length_of(int r) { return (int)((long)count * (r + 1) / size); }
static void lay_out(int* n, int* at) {
  int next = 0;
  for (int r = size - 1; r >= 0; --r) n[r] = length_of(r), at[r] = next, next += n[r];
}
static void prepare_out_uneven(void) {
  if (!in_place) return;
  for (int i = 0; i < lengths[rank]; ++i) out[places[rank] + i] = value(rank, i);
}

static void all_gather_v(int form) {
  void (*prepare)(void) = prepare_out_uneven;
  lay_out(lengths, places);
  fill_own(in), clear(), prepare();
  MAKE(Allgatherv, allgatherv, in_place ? MPI_IN_PLACE : in, lengths[rank], MPI_INT, out, lengths,
       places, MPI_INT, comm);
  for (int r = 0; r < size; ++r) EXPECT("allgatherv", lengths[r], out + places[r], value(r, i));
}

static void reduce_scatter_block(int form) {
  void (*prepare)(void) = prepare_out_blocks;
  fill_blocks(in), clear(), prepare();
  MAKE(Reduce_scatter_block, reduce_scatter_block, in_place ? MPI_IN_PLACE : in, out, count,
       MPI_INT, MPI_SUM, comm);
  EXPECT("reduce_scatter_block", count, out, sum_of_blocks(rank, i));
}

static void fill_uneven(int* at) {
  int next = 0;
  for (int r = 0; r < size; ++r)
    for (int i = 0; i < lengths[r]; ++i) at[next++] = block_value(rank, r, i);
}
static void prepare_uneven_blocks(void) { if (in_place) fill_uneven(out); }

static void reduce_scatter(int form) {
  void (*prepare)(void) = prepare_uneven_blocks;
  lay_out(lengths, places);
  fill_uneven(in), clear(), prepare();
  MAKE(Reduce_scatter, reduce_scatter, in_place ? MPI_IN_PLACE : in, out, lengths, MPI_INT,
       MPI_SUM, comm);
  EXPECT("reduce_scatter", lengths[rank], out, sum_of_blocks(rank, i));
}

static void all_to_all(int form) {
  void (*prepare)(void) = prepare_out_blocks;
  fill_blocks(in), clear(), prepare();
  MAKE(Alltoall, alltoall, in_place ? MPI_IN_PLACE : in, count, MPI_INT, out, count, MPI_INT, comm);
  for (int r = 0; r < size; ++r)
    EXPECT("alltoall", count, out + (size_t)r * count, block_value(r, rank, i));
}

/* Rank a sends length_of(b) elements to rank b. */
static void all_to_all_v(int form) {
  PREPARE_NOTHING;
  if (in_place) return;
  lay_out(from_lengths, from_places);
  for (int r = 0; r < size; ++r) lengths[r] = length_of(rank), places[r] = r * lengths[r];
  clear();
  for (int r = 0; r < size; ++r)
    for (int i = 0; i < from_lengths[r]; ++i) in[from_places[r] + i] = block_value(rank, r, i);
  MAKE(Alltoallv, alltoallv, in, from_lengths, from_places, MPI_INT, out, lengths, places, MPI_INT,
       comm);
  for (int r = 0; r < size; ++r)
    EXPECT("alltoallv", lengths[r], out + places[r], block_value(r, rank, i));
}

static void gather(int form, int root) {
  void (*prepare)(void) = rank == root ? prepare_out_mine : prepare_none;
  fill_own(in), clear(), prepare();
  MAKE(Gather, gather, in_place && rank == root ? MPI_IN_PLACE : in, count, MPI_INT, out, count,
       MPI_INT, root, comm);
  for (int r = 0; r < size && rank == root; ++r)
    EXPECT("gather", count, out + (size_t)r * count, value(r, i));
}

static void gather_v(int form, int root) {
  void (*prepare)(void) = rank == root ? prepare_out_uneven : prepare_none;
  lay_out(lengths, places);
  fill_own(in), clear(), prepare();
  MAKE(Gatherv, gatherv, in_place && rank == root ? MPI_IN_PLACE : in, lengths[rank], MPI_INT, out,
       lengths, places, MPI_INT, root, comm);
  for (int r = 0; r < size && rank == root; ++r)
    EXPECT("gatherv", lengths[r], out + places[r], value(r, i));
}

static void scatter(int form, int root) {
  PREPARE_NOTHING;
  const int mine = in_place && rank == root;
  fill_blocks(in), clear();
  MAKE(Scatter, scatter, in, count, MPI_INT, mine ? MPI_IN_PLACE : out, count, MPI_INT, root, comm);
  const int* got = mine ? in + (size_t)rank * count : out;
  EXPECT("scatter", count, got, block_value(root, rank, i));
}

static void scatter_v(int form, int root) {
  PREPARE_NOTHING;
  const int mine = in_place && rank == root;
  lay_out(lengths, places);
  clear();
  for (int r = 0; r < size; ++r)
    for (int i = 0; i < lengths[r]; ++i) in[places[r] + i] = block_value(rank, r, i);
  MAKE(Scatterv, scatterv, in, lengths, places, MPI_INT, mine ? MPI_IN_PLACE : out, lengths[rank],
       MPI_INT, root, comm);
  const int* got = mine ? in + places[rank] : out;
  EXPECT("scatterv", lengths[rank], got, block_value(root, rank, i));
}

/* Nobody leaves before the last has come: all ranks have one clock. */
static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void barrier(int form) {
  PREPARE_NOTHING;
  MPI_Request request;
  ++checks;
  usleep(2000 * (unsigned)((rank + checks) % size));
  double came = now(), last_came = 0;
  if (form == BLOCKING) {
    MPI_Barrier(comm);
  } else if (form == NONBLOCKING) {
    MPI_Ibarrier(comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MAKE_PERSISTENT(Barrier, comm);
  }
  const double left = now();
  PMPI_Allreduce(&came, &last_came, 1, MPI_DOUBLE, MPI_MAX, comm);
  check(left >= last_came, "barrier", form, 0, 0, left, last_came);
}

static void all_collectives(int n) {
  count = n;
  const size_t bytes = sizeof(int) * (size_t)n * size + 64;
  in = malloc(bytes), out = malloc(bytes);
  for (in_place = 0; in_place < 2; ++in_place) {
    for (int form = 0; form < FORMS; ++form) {
      const int root = (form + n) % size;
      all_reduce(form), all_gather(form), all_gather_v(form), reduce_scatter_block(form);
      reduce_scatter(form), all_to_all(form), all_to_all_v(form), barrier(form);
      reduce(form, root), bcast(form, root), gather(form, root), gather_v(form, root);
      scatter(form, root), scatter_v(form, root);
    }
  }
  free(in), free(out);
  in = out = NULL;
}

/* Every type with every operator that it takes, 17 elements. */
#define EACH_OPERATOR(T, type, name, bits)                                                     \
  do {                                                                                         \
    T a[17], b[17];                                                                            \
    MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_BAND, MPI_BOR, MPI_BXOR};         \
    for (int k = 0; k < ((bits) ? 7 : 4); ++k) {                                               \
      for (int i = 0; i < 17; ++i) a[i] = (T)(1 + (rank + i) % 3);                             \
      MPI_Allreduce(a, b, 17, type, ops[k], comm);                                             \
      for (int i = 0; i < 17; ++i) {                                                           \
        long wanted = 1 + i % 3;                                                               \
        for (int r = 1; r < size; ++r) {                                                       \
          const long next = 1 + (r + i) % 3;                                                   \
          wanted = k == 0   ? wanted + next                                                    \
                   : k == 1 ? wanted * next                                                    \
                   : k == 2 ? (wanted > next ? wanted : next)                                  \
                   : k == 3 ? (wanted < next ? wanted : next)                                  \
                   : k == 4 ? (wanted & next)                                                  \
                   : k == 5 ? (wanted | next)                                                  \
                            : (wanted ^ next);                                                 \
        }                                                                                      \
        check(b[i] == (T)wanted, name, BLOCKING, k, i, (double)b[i], (double)(T)wanted);       \
      }                                                                                        \
      ++checks;                                                                                \
    }                                                                                          \
  } while (0)

static void all_types(void) {
  EACH_OPERATOR(signed char, MPI_SIGNED_CHAR, "signed char", 1);
  EACH_OPERATOR(unsigned char, MPI_UNSIGNED_CHAR, "unsigned char", 1);
  EACH_OPERATOR(short, MPI_SHORT, "short", 1);
  EACH_OPERATOR(unsigned short, MPI_UNSIGNED_SHORT, "unsigned short", 1);
  EACH_OPERATOR(int, MPI_INT, "int", 1);
  EACH_OPERATOR(unsigned, MPI_UNSIGNED, "unsigned", 1);
  EACH_OPERATOR(long, MPI_LONG, "long", 1);
  EACH_OPERATOR(unsigned long, MPI_UNSIGNED_LONG, "unsigned long", 1);
  EACH_OPERATOR(long long, MPI_LONG_LONG, "long long", 1);
  EACH_OPERATOR(float, MPI_FLOAT, "float", 0);
  EACH_OPERATOR(double, MPI_DOUBLE, "double", 0);
  EACH_OPERATOR(long double, MPI_LONG_DOUBLE, "long double", 0);
  EACH_OPERATOR(int64_t, MPI_INT64_T, "int64_t", 1);
  EACH_OPERATOR(uint16_t, MPI_UINT16_T, "uint16_t", 1);
  double complex z = 1 + rank * I, total;
  MPI_Allreduce(&z, &total, 1, MPI_C_DOUBLE_COMPLEX, MPI_SUM, comm);
  check(creal(total) == size && cimag(total) == size * (size - 1) / 2, "complex sum", 0, 1, 0,
        cimag(total), size * (size - 1) / 2.0);
  MPI_Allreduce(&z, &total, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, comm);
  double complex product = 1;
  for (int r = 0; r < size; ++r) product *= 1 + r * I;
  check(total == product, "complex product", 0, 1, 0, creal(total), creal(product));
  struct {
    double value;
    int at;
  } mine = {10.0 - rank, rank}, least;
  MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
  check(least.at == size - 1, "minloc", 0, 1, 0, least.at, size - 1);
  int yes = rank == 0, any;
  MPI_Allreduce(&yes, &any, 1, MPI_INT, MPI_LOR, comm);
  check(any == 1, "lor", 0, 1, 0, any, 1);
  checks += 4;
}

static void add_doubled(void* a, void* b, int* n, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *n; ++i) ((int*)b)[i] = 2 * (((int*)a)[i] + ((int*)b)[i]);
}

static void unusual_calls(void) {
  enum { N = 3000 };
  int* a = malloc(sizeof(int) * 4 * N);
  int* b = malloc(sizeof(int) * 4 * N * size);
  /* An operator of the program's own. */
  MPI_Op op;
  MPI_Op_create(add_doubled, 1, &op);
  for (int i = 0; i < N; ++i) a[i] = i;
  MPI_Allreduce(a, b, N, MPI_INT, op, comm);
  if (size == 2) check(b[7] == 28, "user operator", 0, N, 7, b[7], 28);
  MPI_Op_free(&op);
  /* Each second integer; the root alone has gaps. */
  MPI_Datatype sparse, pairs;
  MPI_Type_vector(N, 1, 2, MPI_INT, &sparse);
  MPI_Type_commit(&sparse);
  for (int k = 0; k < 3; ++k) {
    for (int i = 0; i < 2 * N; ++i) a[i] = rank == 0 ? i : -1;
    /* A long message of the same class first came without gaps. */
    if (k != 1) MPI_Bcast(a, N, MPI_INT, 0, comm);
    if (rank == 0) {
      MPI_Bcast(a, 1, sparse, 0, comm);
    } else {
      MPI_Bcast(a, N, MPI_INT, 0, comm);
      for (int i = 0; i < N; ++i) check(a[i] == 2 * i, "gaps at the root", 0, N, i, a[i], 2 * i);
    }
    for (int i = 0; i < 2 * N; ++i) a[i] = rank == 0 ? i : -1;
    if (rank != 0) {
      MPI_Bcast(a, 1, sparse, 0, comm);
      for (int i = 0; i < 2 * N - 1; ++i)
        check(a[i] == (i % 2 ? -1 : i / 2), "gaps elsewhere", 0, N, i, a[i], i / 2);
    } else {
      MPI_Bcast(a, N, MPI_INT, 0, comm);
    }
  }
  /* A contiguous type of the program's. */
  MPI_Type_contiguous(2, MPI_INT, &pairs);
  MPI_Type_commit(&pairs);
  for (int i = 0; i < 2 * N; ++i) a[i] = value(rank, i);
  MPI_Allgather(a, N, pairs, b, 2 * N, MPI_INT, comm);
  for (int r = 0; r < size; ++r)
    for (int i = 0; i < 2 * N; ++i)
      check(b[r * 2 * N + i] == value(r, i), "pairs", 0, N, i, b[r * 2 * N + i], value(r, i));
  MPI_Type_free(&sparse), MPI_Type_free(&pairs);
  checks += 8;
  free(a), free(b);
}

/* A message that the MPI moves while a collective waits: its sender comes only later. */
static void messages_beside_collectives(void) {
  enum { N = 1 << 20 };
  int *a = malloc(sizeof(int) * N), *b = malloc(sizeof(int) * N), sum;
  const int partner = rank ^ 1;
  MPI_Request request;
  for (int turn = 0; turn < 3 && partner < size; ++turn) {
    for (int i = 0; i < N; ++i) a[i] = value(rank, i + turn), b[i] = 0;
    if (rank % 2 == 0) {
      MPI_Irecv(b, N, MPI_INT, partner, 5, comm, &request);
      MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      check(b[N - 1] == value(partner, N - 1 + turn), "message", 0, N, N - 1, b[N - 1], 0);
    } else {
      MPI_Send(a, N, MPI_INT, partner, 5, comm);
      MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    }
    ++checks;
  }
  for (int turn = 0; turn < 3 && partner >= size; ++turn)
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
  free(a), free(b);
}

typedef int LookAtSome(int, MPI_Request*, int*, int*, MPI_Status*);
typedef int LookAtAll(int, MPI_Request*, int*, MPI_Status*);

/* MPI 4.1's functions, which the library adds to an older MPI. Nothing but these looks at the
 * requests meanwhile. */
static void look_at_requests(int n, MPI_Request* requests) {
  LookAtSome* const get_any = (LookAtSome*)dlsym(RTLD_DEFAULT, "MPI_Request_get_status_any");
  LookAtSome* const get_some = (LookAtSome*)dlsym(RTLD_DEFAULT, "MPI_Request_get_status_some");
  LookAtAll* const get_all = (LookAtAll*)dlsym(RTLD_DEFAULT, "MPI_Request_get_status_all");
  if (get_any == NULL) return;
  int indices[n], index, flag = 0, some = 0;
  while (!flag) get_any(n, requests, &index, &flag, MPI_STATUS_IGNORE);
  while (some == 0) get_some(n, requests, &some, indices, MPI_STATUSES_IGNORE);
  for (flag = 0; !flag;) get_all(n, requests, &flag, MPI_STATUSES_IGNORE);

  MPI_Request null = MPI_REQUEST_NULL;
  MPI_Status status = {.MPI_ERROR = MPI_ERR_OTHER};
  get_any(1, &null, &index, &flag, &status);
  check(flag && index == MPI_UNDEFINED && status.MPI_SOURCE == MPI_ANY_SOURCE &&
            status.MPI_TAG == MPI_ANY_TAG && status.MPI_ERROR == MPI_SUCCESS,
        "an empty status", 1, 1, status.MPI_SOURCE, status.MPI_ERROR, MPI_SUCCESS);
}

/* Several requests of both kinds, waited for in each way. */
static void many_requests(void) {
  enum { N = 5000, K = 6 };
  int* a = malloc(sizeof(int) * N);
  int* b = malloc(sizeof(int) * N * K);
  for (int i = 0; i < N; ++i) a[i] = value(rank, i);
  for (int way = 0; way < 6; ++way) {
    MPI_Request requests[K + 2];
    int token = rank, got = -1, indices[K + 2], done = 0;
    memset(b, 0, sizeof(int) * N * K);
    for (int k = 0; k < K; ++k)
      MPI_Iallreduce(a, b + k * N, N - k, MPI_INT, MPI_SUM, comm, &requests[k]);
    MPI_Irecv(&got, 1, MPI_INT, (rank + size - 1) % size, 9, comm, &requests[K]);
    MPI_Isend(&token, 1, MPI_INT, (rank + 1) % size, 9, comm, &requests[K + 1]);
    if (way == 0) {
      MPI_Waitall(K + 2, requests, MPI_STATUSES_IGNORE);
    } else if (way == 1) {
      for (int flag = 0; !flag;) MPI_Testall(K + 2, requests, &flag, MPI_STATUSES_IGNORE);
    } else if (way == 2) {
      for (done = 0; done < K + 2; ++done) {
        int index;
        MPI_Waitany(K + 2, requests, &index, MPI_STATUS_IGNORE);
        if (index == MPI_UNDEFINED) fail("waitany", 1, N, done, index, 0);
      }
    } else if (way == 3) {
      while (done < K + 2) {
        int some;
        MPI_Waitsome(K + 2, requests, &some, indices, MPI_STATUSES_IGNORE);
        if (some == MPI_UNDEFINED) fail("waitsome", 1, N, done, some, 0);
        done += some;
      }
    } else if (way == 4) {
      look_at_requests(K + 2, requests);
      MPI_Waitall(K + 2, requests, MPI_STATUSES_IGNORE);
    } else {
      for (int k = K + 1; k >= 0; --k)
        for (int flag = 0; !flag;) MPI_Test(&requests[k], &flag, MPI_STATUS_IGNORE);
    }
    for (int k = 0; k < K + 2; ++k)
      if (requests[k] != MPI_REQUEST_NULL) fail("a request is left", 1, N, k, 0, 0);
    for (int k = 0; k < K; ++k)
      for (int i = 0; i < N - k; ++i)
        check(b[k * N + i] == sum_of_values(i), "several", 1, N, i, b[k * N + i], sum_of_values(i));
    check(got == (rank + size - 1) % size, "a message beside them", 1, 1, 0, got, 0);
    checks += K + 1;
  }
  free(a), free(b);
}

/* Types that the program frees while requests use them. */
static void freed_types(void) {
  enum { N = 300 };
  int b[2 * N];
  MPI_Request request;
  MPI_Datatype three, every_second;
#if MPI_VERSION >= 4 || OMPI_MAJOR_VERSION >= 5
  MPI_Type_contiguous(3, MPI_INT, &three);
  MPI_Type_commit(&three);
  MPI_Bcast_init(b, N / 3, three, size - 1, comm, MPI_INFO_NULL, &request);
  MPI_Type_free(&three);
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < N; ++i) b[i] = value(rank, i + turn);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < N; ++i)
      check(b[i] == value(size - 1, i + turn), "a freed type", 2, N, i, b[i], 0);
  }
  MPI_Request_free(&request);
#else
  (void)three;
#endif
  for (int gaps = 0; gaps < 3; ++gaps) { /* the first calls of a kind are without them */
    for (int i = 0; i < 2 * N; ++i) b[i] = value(rank, i);
    MPI_Bcast(b, N, MPI_INT, 0, comm);
    MPI_Type_vector(N, 1, gaps > 0 ? 2 : 1, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    for (int i = 0; i < 2 * N; ++i) b[i] = value(rank, i);
    MPI_Ibcast(b, 1, every_second, 0, comm, &request);
    MPI_Type_free(&every_second);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < N; ++i) {
      const int at = gaps > 0 ? 2 * i : i;
      check(b[at] == value(0, at), "a freed type", 1, N, at, b[at], value(0, at));
    }
  }
  ++checks;
}

/* Each rank's sent blocks lie between the blocks that it receives. */
static void interleaved_blocks(void) {
  int b[1000], counts[64], places[64], sent[64];
  if (size > 16) return;
  for (int r = 0; r < size; ++r) counts[r] = 4, places[r] = sent[r] = 20 * r;
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < 1000; ++i) b[i] = -1;
    for (int r = 0; r < size; ++r)
      for (int i = 0; i < 4; ++i) b[10 + sent[r] + i] = value(rank, 4 * r + i);
    MPI_Alltoallv(b + 10, counts, sent, MPI_INT, b, counts, places, MPI_INT, comm);
    for (int r = 0; r < size; ++r)
      for (int i = 0; i < 4; ++i)
        check(b[places[r] + i] == value(r, 4 * rank + i), "blocks in turn", 0, 4, i,
              b[places[r] + i], value(r, 4 * rank + i));
    MPI_Gatherv(b + 10, 4, MPI_INT, b, counts, places, MPI_INT, 0, comm);
    for (int r = 0; r < size && rank == 0; ++r)
      for (int i = 0; i < 4; ++i)
        check(b[places[r] + i] == value(r, i), "gathered in turn", 0, 4, i, b[places[r] + i], 0);
  }
  ++checks;
}

/* Persistent calls that ranks start in unlike orders, and a communicator freed under a request. */
static void loose_orders(void) {
  int a[100], b[2][100];
  for (int i = 0; i < 100; ++i) a[i] = value(rank, i);
#if MPI_VERSION >= 4 || OMPI_MAJOR_VERSION >= 5
  MPI_Request requests[2];
  for (int k = 0; k < 2; ++k)
    MPI_Allreduce_init(a, b[k], 100 - k, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[k]);
  for (int turn = 0; turn < 4; ++turn) {
    memset(b, 0, sizeof b);
    MPI_Start(&requests[rank % 2]), MPI_Start(&requests[1 - rank % 2]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int k = 0; k < 2; ++k)
      for (int i = 0; i < 100 - k; ++i)
        check(b[k][i] == sum_of_values(i), "orders", 2, 100, i, b[k][i], sum_of_values(i));
    ++checks;
  }
  MPI_Startall(2, requests);
  for (int k = 0; k < 2; ++k) {
    int index;
    MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
    if (index == MPI_UNDEFINED) fail("waitany of persistent calls", 2, 100, k, index, 0);
  }
  for (int k = 0; k < 2; ++k) MPI_Request_free(&requests[k]);
#endif
  MPI_Comm other;
  MPI_Comm_dup(comm, &other);
  MPI_Request request;
  MPI_Allreduce(a, b[0], 100, MPI_INT, MPI_SUM, other);
  memset(b, 0, sizeof b);
  MPI_Iallreduce(a, b[0], 100, MPI_INT, MPI_SUM, other, &request);
  MPI_Comm_free(&other);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int i = 0; i < 100; ++i)
    check(b[0][i] == sum_of_values(i), "freed", 1, 100, i, b[0][i], sum_of_values(i));
  ++checks;
}

static void between_groups(void) {
  if (size < 2) return;
  MPI_Comm local, inter;
  const int color = rank % 2;
  MPI_Comm_split(comm, color, rank, &local);
  MPI_Intercomm_create(local, 0, comm, 1 - color, 3, &inter);
  int mine = rank, sum = -1, wanted = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter);
  for (int r = 1 - color; r < size; r += 2) wanted += r;
  check(sum == wanted, "between groups", 0, 1, 0, sum, wanted);
  ++checks;
  MPI_Comm_free(&inter), MPI_Comm_free(&local);
}

static void everything(MPI_Comm of, int argc, char** argv) {
  static const int counts[] = {0, 1, 7, 1000, 40000};
  comm = of;
  MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
  lengths = malloc(sizeof(int) * size), places = malloc(sizeof(int) * size);
  from_lengths = malloc(sizeof(int) * size), from_places = malloc(sizeof(int) * size);
  const int loose = argc > 1 && strcmp(argv[1], "loose") == 0, first = loose ? 2 : 1;
  for (int i = first; i < argc; ++i) all_collectives(atoi(argv[i]));
  for (size_t i = 0; first >= argc && i < sizeof counts / sizeof *counts; ++i)
    all_collectives(counts[i]);
  all_types(), unusual_calls(), messages_beside_collectives(), many_requests();
  if (loose) loose_orders(), freed_types();
  interleaved_blocks();
  between_groups();
  free(lengths), free(places), free(from_lengths), free(from_places);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  everything(MPI_COMM_WORLD, argc, argv);
  MPI_Comm reversed, part;
  int world_rank, world_size;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &reversed);
  everything(reversed, argc, argv);
  MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &part);
  everything(part, argc, argv);
  MPI_Comm_free(&reversed), MPI_Comm_free(&part);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank == 0) printf("ok %d checks\n", checks);
  MPI_Finalize();
  return 0;
}
