// The device's half of base/reduce.h, bit for bit: one source for NVRTC and hipRTC, which have no
// headers. Where the vendor's own conversions round alike they are used; all others are integer
// arithmetic, as in base/element.h. A test compiles this file for the host too, and compares.
//
// Every kernel is named hetccl_reduce_<type>_<operator> and takes one `Arguments`.

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#define HETCCL_DEVICE static __device__ __forceinline__
#if defined(__CUDACC_RTC__)  // a parameter that is indexed is not copied to the stack first
#define HETCCL_GRID_CONSTANT __grid_constant__
#else
#define HETCCL_GRID_CONSTANT
#endif
#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define HETCCL_UNROLL _Pragma("unroll")
#else
#define HETCCL_UNROLL
#endif

// device/kernels/kernels.h has its twin.
struct Arguments {
  void* dst;
  const void* srcs[16];
  u64 count;
  u64 factor;   // of PreMulSum, as it lies in memory
  u32 divisor;  // of Avg
  u32 n_srcs;
};

enum Op { Sum, Prod, Max, Min, Avg, PreMulSum, Band, Bor, Bxor };

template <typename To, typename From>
HETCCL_DEVICE To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// What a type accumulates in, with the arithmetic that wraps where integers do.
template <typename Sum, typename Wrapping>
struct Integer {
  HETCCL_DEVICE Sum add(Sum a, Sum b) { return (Sum)((Wrapping)a + (Wrapping)b); }
  HETCCL_DEVICE Sum multiply(Sum a, Sum b) { return (Sum)((Wrapping)a * (Wrapping)b); }
  HETCCL_DEVICE Sum divide(Sum a, u32 by) { return a / (Sum)by; }
  HETCCL_DEVICE Sum bits(Op op, Sum a, Sum b) {
    return op == Band ? a & b : op == Bor ? a | b : a ^ b;
  }
};

template <typename Sum>
struct Real {
  HETCCL_DEVICE Sum add(Sum a, Sum b) { return a + b; }
  HETCCL_DEVICE Sum multiply(Sum a, Sum b) { return a * b; }
  HETCCL_DEVICE Sum divide(Sum a, u32 by) { return a / (Sum)by; }
  HETCCL_DEVICE Sum bits(Op, Sum a, Sum) { return a; }  // never: see HETCCL_BITWISE
};

// Integers of 8 and 16 bits too: what wraps late wraps to the same.
template <typename Word_, typename Sum_, typename Wrapping>
struct Whole : Integer<Sum_, Wrapping> {
  typedef Word_ Word;
  typedef Sum_ Sum;
  HETCCL_DEVICE Sum load(Word word) { return (Sum)word; }
  HETCCL_DEVICE Word store(Sum sum) { return (Word)sum; }
};

template <typename Word_, typename Bits, Bits kNan>
struct Plain : Real<Word_> {
  typedef Word_ Word;
  typedef Word_ Sum;
  HETCCL_DEVICE Sum load(Word word) { return word; }
  HETCCL_DEVICE Word store(Sum sum) { return sum != sum ? bits_of<Word>(kNan) : sum; }
};

struct BFloat : Real<float> {
  typedef u16 Word;
  typedef float Sum;
  HETCCL_DEVICE Sum load(Word word) { return bits_of<float>((u32)word << 16); }
  HETCCL_DEVICE Word store(Sum sum) {
    const u32 bits = bits_of<u32>(sum);
    const u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (Word)(sum != sum ? 0x7fc0u : rounded);
  }
};

struct Half : Real<float> {
  typedef u16 Word;
  typedef float Sum;
#if defined(__CUDA_ARCH__)
  HETCCL_DEVICE Sum load(Word word) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(word));
    return value;
  }
  HETCCL_DEVICE Word store(Sum sum) {
    Word word;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(word) : "f"(sum));
    return (Word)(sum != sum ? 0x7e00u : word);
  }
#else
  HETCCL_DEVICE Sum load(Word word) {
    const u32 magnitude = (word & 0x7fffu) << 13;
    const float scaled = bits_of<float>(magnitude) * bits_of<float>(0x77800000u);  // 2^112
    const u32 special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return bits_of<float>(bits_of<u32>(scaled) | special | (u32)(word & 0x8000u) << 16);
  }
  HETCCL_DEVICE Word store(Sum sum) {
    const u32 bits = bits_of<u32>(sum), magnitude = bits & 0x7fffffffu;
    const u32 small = bits_of<u32>(bits_of<float>(magnitude) + 0.5f) - 0x3f000000u;
    const u32 normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    u32 half = magnitude < 0x38800000u ? small : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;
    return (Word)(magnitude > 0x7f800000u ? 0x7e00u : half | ((bits >> 16) & 0x8000u));
  }
#endif
};

template <int kFraction, int kBias, u32 kLargest, bool kHasInfinity>
struct Float8 : Real<float> {
  typedef u8 Word;
  typedef float Sum;
  static const int kShift = 23 - kFraction;
  static const u32 kRebias = (u32)(127 - kBias) << 23;
  static const u32 kLeast = (u32)(128 - kBias - kFraction) << 23;
  static const u32 kRounder = (u32)(151 - kBias - kFraction) << 23;
  HETCCL_DEVICE Sum load(Word word) {
    const u32 magnitude = word & 0x7fu;
    const u32 normal = (magnitude << kShift) + kRebias;
    const u32 small = bits_of<u32>((float)(i32)magnitude * bits_of<float>((u32)kLeast));
    u32 bits = magnitude < (1u << kFraction) ? small : normal;
    bits = magnitude > kLargest ? 0x7fc00000u : bits;
    bits = kHasInfinity && magnitude == kLargest + 1 ? 0x7f800000u : bits;
    return bits_of<float>(bits | (word & 0x80u) << 24);
  }
  HETCCL_DEVICE Word store(Sum sum) {
    const u32 bits = bits_of<u32>(sum), magnitude = bits & 0x7fffffffu;
    const u32 small =
        bits_of<u32>(bits_of<float>(magnitude) + bits_of<float>((u32)kRounder)) - kRounder;
    const u32 normal =
        (magnitude - kRebias + (1u << (kShift - 1)) - 1u + ((magnitude >> kShift) & 1u)) >> kShift;
    u32 code = magnitude < kRebias + (1u << 23) ? small : normal;
    code = code > kLargest ? kLargest : code;
    return (Word)(magnitude > 0x7f800000u ? 0x7fu : code | ((bits >> 24) & 0x80u));
  }
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
// In hardware: through fp16, which holds all of them; storing saturates, and makes a NaN 0x7f.
struct E4m3 : Real<float> {
  typedef u8 Word;
  typedef float Sum;
  HETCCL_DEVICE Sum load(Word word) {
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((u16)word));
    return Half::load((u16)halves);
  }
  HETCCL_DEVICE Word store(Sum sum) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(sum));
    return (Word)(sum != sum ? 0x7fu : pair);
  }
};

struct E5m2 : Real<float> {
  typedef u8 Word;
  typedef float Sum;
  // The upper half of an fp16.
  HETCCL_DEVICE Sum load(Word word) { return Half::load((u16)(word << 8)); }
  HETCCL_DEVICE Word store(Sum sum) {
    u16 pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(sum));
    return (Word)(sum != sum ? 0x7fu : pair);
  }
};
#else
typedef Float8<3, 7, 0x7eu, false> E4m3;
typedef Float8<2, 15, 0x7bu, true> E5m2;
#endif

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
  return op == PreMulSum ? Type::multiply(Type::load(word), factor) : Type::load(word);
}

template <typename Type, Op op>
HETCCL_DEVICE typename Type::Word finish(typename Type::Sum sum, u32 divisor) {
  return Type::store(op == Avg ? Type::divide(sum, divisor) : sum);
}

template <typename Type>
HETCCL_DEVICE typename Type::Sum factor_of(const Arguments& a) {
  typename Type::Word word;
  memcpy(&word, &a.factor, sizeof word);
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
  ((Word*)a.dst)[i] = finish<Type, op>(sum, a.divisor);
}

// Elements until all pointers are aligned, or all of them where they never are together.
template <typename Word>
HETCCL_DEVICE u64 head_of(const Arguments& a) {
  const u32 offset = (u32)((u64)a.dst % kVectorBytes);
  bool alike = offset % sizeof(Word) == 0;
  for (u32 s = 0; s < a.n_srcs; ++s) alike &= (u32)((u64)a.srcs[s] % kVectorBytes) == offset;
  const u64 head = (kVectorBytes - offset) % kVectorBytes / sizeof(Word);
  return alike && head < a.count ? head : a.count;
}

// Vector `at` of any number of sources. Loads come before the store: `dst` may be a source.
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
  for (int w = 0; w < kWords; ++w) vector.words[w] = finish<Type, op>(sums[w], a.divisor);
  ((uint4*)((Word*)a.dst + head))[at] = vector.whole;
}

// `kUnroll` vectors of two sources, whose loads are under way at once.
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
      const typename Type::Sum sum =
          combine<Type, op>(load<Type, op>(one[u].words[w], factor),
                            load<Type, op>(other[u].words[w], factor));
      one[u].words[w] = finish<Type, op>(sum, a.divisor);
    }
    ((uint4*)((Word*)a.dst + head))[at + u * step] = one[u].whole;
  }
}

template <typename Type, Op op>
HETCCL_DEVICE void reduce(const Arguments& a) {
  typedef typename Type::Word Word;
  const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  const u64 threads = (u64)gridDim.x * blockDim.x;
  const typename Type::Sum factor = factor_of<Type>(a);
  const u64 head = head_of<Word>(a);
  const u64 vectors = (a.count - head) / (kVectorBytes / sizeof(Word));
  u64 at = thread;
  if (a.n_srcs == 2) {
    // What wide code unrolls into takes long to compile and gains nothing.
    const int kUnroll = sizeof(Word) == 1 ? 1 : sizeof(Word) == 2 ? 2 : 4;
    for (; at + (kUnroll - 1) * threads < vectors; at += kUnroll * threads)
      reduce_pairs<Type, op, kUnroll>(a, head, at, threads, factor);
  }
  for (; at < vectors; at += threads) reduce_vector<Type, op>(a, head, at, factor);
  // What is left at both ends, or everything.
  const u64 tail = vectors * (kVectorBytes / sizeof(Word));
  for (u64 i = thread; i < a.count - tail; i += threads)
    reduce_one<Type, op>(a, i < head ? i : i + tail, factor);
}

typedef Whole<i8, i32, u32> Int8;
typedef Whole<u8, u32, u32> Uint8;
typedef Whole<i16, i32, u32> Int16;
typedef Whole<u16, u32, u32> Uint16;
typedef Whole<i32, i32, u32> Int32;
typedef Whole<u32, u32, u32> Uint32;
typedef Whole<i64, i64, u64> Int64;
typedef Whole<u64, u64, u64> Uint64;
typedef Plain<float, u32, 0x7fc00000u> Float32;
typedef Plain<double, u64, 0x7ff8000000000000ull> Float64;

#define HETCCL_KERNEL(type, Type, op, Op)                                               \
  extern "C" __global__ void __launch_bounds__(512) hetccl_reduce_##type##_##op(        \
      const HETCCL_GRID_CONSTANT Arguments arguments) {                                 \
    reduce<Type, Op>(arguments);                                                        \
  }
// What wraps, or is bitwise, has the same bits with and without a sign: such kernels exist once.
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

// In parts, which are compiled side by side; without HETCCL_PART it is all of them.
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

#if !defined(HETCCL_PART) || HETCCL_PART == 0
// Flags, where the runtime's streams cannot wait for words and write them: one thread each.
extern "C" __global__ void hetccl_wait_flag(volatile u32* word, u32 value) {
  while ((i32)(*word - value) < 0) {
  }
  __threadfence_system();
}

extern "C" __global__ void hetccl_write_flag(volatile u32* word, u32 value) {
  __threadfence_system();
  *word = value;
}
#endif
