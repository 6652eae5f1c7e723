// Flags, and short work that one launch does: the threads of one block do the steps together, in
// order. Batch kernels are named hetccl_batch_<type>, after the type that they reduce.

#if defined(__HIPCC_RTC__)
HETCCL_DEVICE u32 load_flag(u32* word) {
  return __hip_atomic_load(word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
HETCCL_DEVICE void store_flag(u32* word, u32 value) {
  __hip_atomic_store(word, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
HETCCL_DEVICE void pause_briefly() {
  __builtin_amdgcn_s_sleep(1);
}
#else
HETCCL_DEVICE u32 load_flag(volatile u32* word) {
  return *word;
}
HETCCL_DEVICE void store_flag(volatile u32* word, u32 value) {
  *word = value;
}
HETCCL_DEVICE void pause_briefly() {}
#endif

// Called by one thread.
HETCCL_DEVICE void wait_flag(u32* word, u32 value) {
  while ((i32)(load_flag(word) - value) < 0) pause_briefly();
  __threadfence_system();
}
HETCCL_DEVICE void write_flag(u32* word, u32 value) {
  __threadfence_system();
  store_flag(word, value);
}

// For streams that cannot wait for words or write them.
#if !defined(HETCCL_PART) || HETCCL_PART == 0
extern "C" __global__ void hetccl_wait_flag(u32* word, u32 value) {
  wait_flag(word, value);
}
extern "C" __global__ void hetccl_write_flag(u32* word, u32 value) {
  write_flag(word, value);
}
#endif

// Twins are in device/kernels/kernels.h.
enum StepKind { WaitStep, WriteStep, CopyStep, ReduceStep };
struct BatchStep {
  u32 kind;   // of StepKind
  u32 value;  // of the flag; of a reduction, its operator
  u32* word;  // the flag
};
struct Batch {
  BatchStep steps[16];
  Arguments works[6];  // of copies and reductions, in order
  u32 n_steps;
};

// Copies `count` bytes, with several loads in flight at once.
HETCCL_DEVICE void copy_short(const Arguments& a) {
  const u32 kLoads = 4;
  const u64 head = head_of<u8>(a);
  const u64 vectors = (a.count - head) / kVectorBytes;
  const uint4* from = (const uint4*)((const u8*)a.srcs[0] + head);
  uint4* to = (uint4*)((u8*)a.dst + head);
  for (u64 at = threadIdx.x; at < vectors; at += kLoads * blockDim.x) {
    uint4 loaded[kLoads];
    HETCCL_UNROLL
    for (u32 i = 0; i < kLoads; ++i)
      if (at + i * blockDim.x < vectors) loaded[i] = from[at + i * blockDim.x];
    HETCCL_UNROLL
    for (u32 i = 0; i < kLoads; ++i)
      if (at + i * blockDim.x < vectors) to[at + i * blockDim.x] = loaded[i];
  }
  const u64 tail = vectors * kVectorBytes;
  for (u64 i = threadIdx.x; i < a.count - tail; i += blockDim.x) {
    const u64 at = i < head ? i : i + tail;
    ((u8*)a.dst)[at] = ((const u8*)a.srcs[0])[at];
  }
}

// Many copies, each by one block. Twin of device/kernels/kernels.h.
struct CopyList {
  struct {
    void* dst;
    const void* src;
    u64 bytes;
  } copies[128];
  u32 n;
};
#if !defined(HETCCL_PART) || HETCCL_PART == 0
extern "C" __global__ void __launch_bounds__(512)
    hetccl_copy_list(const HETCCL_GRID_CONSTANT CopyList list) {
  for (u32 i = blockIdx.x; i < list.n; i += gridDim.x) {
    Arguments one;
    one.dst = list.copies[i].dst;
    one.srcs[0] = list.copies[i].src;
    one.n_srcs = 1;
    one.count = list.copies[i].bytes;
    copy_short(one);
  }
}
#endif

// A flag is written once all threads have done the steps before it. Steps after a wait begin after
// it.
template <typename Short>
HETCCL_DEVICE void run_batch(const Batch& batch) {
  u32 work = 0;
  for (u32 i = 0; i < batch.n_steps; ++i) {
    const BatchStep& step = batch.steps[i];
    __syncthreads();
    if (step.kind == CopyStep) {
      copy_short(batch.works[work++]);
    } else if (step.kind == ReduceStep) {
      Short::run(step.value, batch.works[work++]);
    } else if (threadIdx.x == 0) {
      step.kind == WaitStep ? wait_flag(step.word, step.value) : write_flag(step.word, step.value);
    }
  }
}

#define HETCCL_CASE(Type, op) \
  case op:                    \
    return reduce<Type, op, 2>(a);
#define HETCCL_SIGNED_CASES(Type) \
  HETCCL_CASE(Type, Max) HETCCL_CASE(Type, Min) HETCCL_CASE(Type, Avg)
#define HETCCL_FLOAT_CASES(Type)                                     \
  HETCCL_SIGNED_CASES(Type) HETCCL_CASE(Type, Sum)                   \
  HETCCL_CASE(Type, Prod) HETCCL_CASE(Type, PreMulSum)
#define HETCCL_UNSIGNED_CASES(Type)                                  \
  HETCCL_FLOAT_CASES(Type) HETCCL_CASE(Type, Band)                   \
  HETCCL_CASE(Type, Bor) HETCCL_CASE(Type, Bxor)
#define HETCCL_BATCH(type, Type, CASES)                              \
  struct Short##Type {                                               \
    HETCCL_DEVICE void run(u32 op, const Arguments& a) {             \
      switch (op) { CASES(Type) }                                    \
    }                                                                \
  };                                                                 \
  extern "C" __global__ void __launch_bounds__(512)                  \
      hetccl_batch_##type(const HETCCL_GRID_CONSTANT Batch batch) {  \
    run_batch<Short##Type>(batch);                                   \
  }

#if !defined(HETCCL_PART) || HETCCL_PART == 0
HETCCL_BATCH(int8, Int8, HETCCL_SIGNED_CASES)
HETCCL_BATCH(uint8, Uint8, HETCCL_UNSIGNED_CASES)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 1
HETCCL_BATCH(int16, Int16, HETCCL_SIGNED_CASES)
HETCCL_BATCH(uint16, Uint16, HETCCL_UNSIGNED_CASES)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 2
HETCCL_BATCH(int32, Int32, HETCCL_SIGNED_CASES)
HETCCL_BATCH(uint32, Uint32, HETCCL_UNSIGNED_CASES)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 3
HETCCL_BATCH(int64, Int64, HETCCL_SIGNED_CASES)
HETCCL_BATCH(uint64, Uint64, HETCCL_UNSIGNED_CASES)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 4
HETCCL_BATCH(float8_e4m3, E4m3, HETCCL_FLOAT_CASES)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 5
HETCCL_BATCH(float8_e5m2, E5m2, HETCCL_FLOAT_CASES)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 6
HETCCL_BATCH(float16, Half, HETCCL_FLOAT_CASES)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 7
HETCCL_BATCH(bfloat16, BFloat, HETCCL_FLOAT_CASES)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 8
HETCCL_BATCH(float32, Float32, HETCCL_FLOAT_CASES)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 9
HETCCL_BATCH(float64, Float64, HETCCL_FLOAT_CASES)
#endif
