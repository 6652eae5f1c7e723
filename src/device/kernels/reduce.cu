// The device's half of base/reduce.h, bit for bit. Kernels are named
// hetccl_reduce_<type>_<operator>.

template <typename Type, Op op>
HETCCL_DEVICE typename Type::Sum combine(typename Type::Sum a, typename Type::Sum b) {
  if (op == Prod) return Type::multiply(a, b);
  if (op == Max) return a > b || a != a ? a : b;
  if (op == Min) return a < b || a != a ? a : b;
  if (op == Band || op == Bor || op == Bxor) return Type::bits(op, a, b);
  return Type::add(a, b);
}

template <typename Type, Op op>
HETCCL_DEVICE typename Type::Sum load(typename Type::Word word, typename Type::Sum factor) {
  if (op == PreMulSum) return Type::multiply(Type::load(word), factor);
  if (op == Avg) return Type::scale(Type::load(word), factor);
  return Type::load(word);
}

template <typename Type, Op op>
HETCCL_DEVICE typename Type::Word finish(typename Type::Sum sum, const Arguments& a) {
  return Type::store(op == Avg ? Type::divide(sum, a) : sum);
}

// Returns the factor of each source.
template <typename Type, Op op>
HETCCL_DEVICE typename Type::Sum factor_of(const Arguments& a) {
  if (op == Avg) return (typename Type::Sum)a.down;
  typename Type::Word word;
  HETCCL_COPY(&word, &a.factor, sizeof word);
  return Type::load(word);
}

const u32 kVectorBytes = 16;

template <typename Word>
union Vector {
  uint4 whole;
  Word words[kVectorBytes / sizeof(Word)];
};

template <typename Type, Op op>
HETCCL_DEVICE void reduce_one(const Arguments& a, u64 i, typename Type::Sum factor) {
  typedef typename Type::Word Word;
  typename Type::Sum sum = load<Type, op>(((const Word*)a.srcs[0])[i], factor);
  for (u32 s = 1; s < a.n_srcs; ++s)
    sum = combine<Type, op>(sum, load<Type, op>(((const Word*)a.srcs[s])[i], factor));
  ((Word*)a.dst)[i] = finish<Type, op>(sum, a);
}

// Returns the elements before all pointers are aligned; all elements if they never are together.
template <typename Word>
HETCCL_DEVICE u64 head_of(const Arguments& a) {
  const u32 offset = (u32)((u64)a.dst % kVectorBytes);
  bool alike = offset % sizeof(Word) == 0;
  for (u32 s = 0; s < a.n_srcs; ++s) alike &= (u32)((u64)a.srcs[s] % kVectorBytes) == offset;
  const u64 head = (kVectorBytes - offset) % kVectorBytes / sizeof(Word);
  return alike && head < a.count ? head : a.count;
}

// Reduces vector `at` of any number of sources. Loads before it stores, because `dst` may be a
// source.
template <typename Type, Op op>
HETCCL_DEVICE void reduce_vector(const Arguments& a, u64 head, u64 at, typename Type::Sum factor) {
  typedef typename Type::Word Word;
  const int kWords = kVectorBytes / sizeof(Word);
  Vector<Word> vector;
  typename Type::Sum sums[kWords];
  for (u32 s = 0; s < a.n_srcs; ++s) {
    vector.whole = ((const uint4*)((const Word*)a.srcs[s] + head))[at];
    HETCCL_UNROLL
    for (int w = 0; w < kWords; ++w) {
      const typename Type::Sum one = load<Type, op>(vector.words[w], factor);
      sums[w] = s == 0 ? one : combine<Type, op>(sums[w], one);
    }
  }
  HETCCL_UNROLL
  for (int w = 0; w < kWords; ++w) vector.words[w] = finish<Type, op>(sums[w], a);
  ((uint4*)((Word*)a.dst + head))[at] = vector.whole;
}

// Reduces `kUnroll` vectors of two sources, with all loads in flight at once.
template <typename Type, Op op, int kUnroll>
HETCCL_DEVICE void reduce_pairs(const Arguments& a, u64 head, u64 at, u64 step,
                                typename Type::Sum factor) {
  typedef typename Type::Word Word;
  const uint4* first = (const uint4*)((const Word*)a.srcs[0] + head);
  const uint4* second = (const uint4*)((const Word*)a.srcs[1] + head);
  Vector<Word> one[kUnroll], other[kUnroll];
  HETCCL_UNROLL
  for (int u = 0; u < kUnroll; ++u) {
    one[u].whole = first[at + u * step];
    other[u].whole = second[at + u * step];
  }
  HETCCL_UNROLL
  for (int u = 0; u < kUnroll; ++u) {
    HETCCL_UNROLL
    for (int w = 0; w < (int)(kVectorBytes / sizeof(Word)); ++w) {
      const typename Type::Sum sum = combine<Type, op>(load<Type, op>(one[u].words[w], factor),
                                                       load<Type, op>(other[u].words[w], factor));
      one[u].words[w] = finish<Type, op>(sum, a);
    }
    ((uint4*)((Word*)a.dst + head))[at + u * step] = one[u].whole;
  }
}

// Loads up to `kMost` vectors of 32-bit or wider words at once.
template <typename Type, Op op, int kMost = 4>
HETCCL_DEVICE void reduce(const Arguments& a) {
  typedef typename Type::Word Word;
  const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  const u64 threads = (u64)gridDim.x * blockDim.x;
  const typename Type::Sum factor = factor_of<Type, op>(a);
  const u64 head = head_of<Word>(a);
  const u64 vectors = (a.count - head) / (kVectorBytes / sizeof(Word));
  u64 at = thread;
  if (a.n_srcs == 2) {
    // Unrolling narrow types more takes long to compile and gains nothing.
    const int kUnroll = sizeof(Word) == 1 ? 1 : sizeof(Word) == 2 ? 2 : kMost;
    for (; at + (kUnroll - 1) * threads < vectors; at += kUnroll * threads)
      reduce_pairs<Type, op, kUnroll>(a, head, at, threads, factor);
  }
  for (; at < vectors; at += threads) reduce_vector<Type, op>(a, head, at, factor);
  // The elements at both ends, or all of them.
  const u64 tail = vectors * (kVectorBytes / sizeof(Word));
  for (u64 i = thread; i < a.count - tail; i += threads)
    reduce_one<Type, op>(a, i < head ? i : i + tail, factor);
}

#define HETCCL_KERNEL(type, Type, op, Op)                                           \
  extern "C" __global__ void __launch_bounds__(512)                                 \
      hetccl_reduce_##type##_##op(const HETCCL_GRID_CONSTANT Arguments arguments) { \
    reduce<Type, Op>(arguments);                                                    \
  }
// Wrapping and bitwise operators give the same bits for signed and unsigned types, so such kernels
// exist once.
#define HETCCL_SIGNED(type, Type)     \
  HETCCL_KERNEL(type, Type, max, Max) \
  HETCCL_KERNEL(type, Type, min, Min) \
  HETCCL_KERNEL(type, Type, avg, Avg)
#define HETCCL_KERNELS(type, Type)      \
  HETCCL_SIGNED(type, Type)             \
  HETCCL_KERNEL(type, Type, sum, Sum)   \
  HETCCL_KERNEL(type, Type, prod, Prod) \
  HETCCL_KERNEL(type, Type, premul_sum, PreMulSum)
#define HETCCL_BITWISE(type, Type)      \
  HETCCL_KERNEL(type, Type, band, Band) \
  HETCCL_KERNEL(type, Type, bor, Bor)   \
  HETCCL_KERNEL(type, Type, bxor, Bxor)

// Compiles in parts, in parallel; without HETCCL_PART, all of them.
#if !defined(HETCCL_PART) || HETCCL_PART == 0
HETCCL_SIGNED(int8, Int8)
HETCCL_KERNELS(uint8, Uint8)
HETCCL_BITWISE(uint8, Uint8)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 1
HETCCL_SIGNED(int16, Int16)
HETCCL_KERNELS(uint16, Uint16)
HETCCL_BITWISE(uint16, Uint16)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 2
HETCCL_SIGNED(int32, Int32)
HETCCL_KERNELS(uint32, Uint32)
HETCCL_BITWISE(uint32, Uint32)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 3
HETCCL_SIGNED(int64, Int64)
HETCCL_KERNELS(uint64, Uint64)
HETCCL_BITWISE(uint64, Uint64)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 4
HETCCL_KERNELS(float8_e4m3, E4m3)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 5
HETCCL_KERNELS(float8_e5m2, E5m2)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 6
HETCCL_KERNELS(float16, Half)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 7
HETCCL_KERNELS(bfloat16, BFloat)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 8
HETCCL_KERNELS(float32, Float32)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 9
HETCCL_KERNELS(float64, Float64)
#endif
