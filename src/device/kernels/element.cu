// The device's half of base/element.h, bit for bit: the element types, their accumulation types,
// and conversions. The vendor's conversions are used if they round the same way; all others are
// integer arithmetic.
//
// The kernels are one source for NVRTC and hipRTC, which have no headers: this file, reduce.cu,
// encoding.cu and steps.cu, concatenated. A test compiles them for the host, too, and compares. A
// reduction's kernel takes one `Arguments`.

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#define HETCCL_DEVICE static __device__ __forceinline__
#if defined(__CUDACC_RTC__)  // keeps indexed parameters from being copied to the stack
#define HETCCL_GRID_CONSTANT __grid_constant__
#else
#define HETCCL_GRID_CONSTANT
#endif
#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define HETCCL_UNROLL _Pragma("unroll")
#else
#define HETCCL_UNROLL
#endif
#if defined(__HIPCC_RTC__)  // hipRTC's memcpy compiles to a loop over bytes
#define HETCCL_COPY __builtin_memcpy
#else
#define HETCCL_COPY memcpy
#endif

// Twin of the struct in device/kernels/kernels.h.
struct Arguments {
  void* dst;
  const void* srcs[16];
  u64 count;
  u64 factor;      // of PreMulSum, as stored in memory
  u32 divisor;     // of Avg, for integers
  float down;      // of Avg, for floats: multiplies each source
  float quotient;  // and divides the sum
  u32 n_srcs;
  u32 encoded;  // bit s: source s is encoded; bit 16: the result is
  u32 block;    // elements of an encoded block
  u32 salt;     // for stochastic codes
  u32 stochastic;
  u64 first_element;
  void* residual;  // of an encoded result, or null
};

enum Op { Sum, Prod, Max, Min, Avg, PreMulSum, Band, Bor, Bxor };

template <typename To, typename From>
HETCCL_DEVICE To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  HETCCL_COPY(&to, &from, sizeof to);
  return to;
}

// Arithmetic on sums. Integers wrap.
template <typename Sum, typename Wrapping>
struct Integer {
  HETCCL_DEVICE Sum add(Sum a, Sum b) { return (Sum)((Wrapping)a + (Wrapping)b); }
  HETCCL_DEVICE Sum multiply(Sum a, Sum b) { return (Sum)((Wrapping)a * (Wrapping)b); }
  HETCCL_DEVICE Sum scale(Sum a, Sum) { return a; }
  HETCCL_DEVICE Sum divide(Sum a, const Arguments& by) { return a / (Sum)by.divisor; }
  HETCCL_DEVICE Sum bits(Op op, Sum a, Sum b) {
    return op == Band ? a & b : op == Bor ? a | b : a ^ b;
  }
};

template <typename Sum>
struct Real {
  HETCCL_DEVICE Sum add(Sum a, Sum b) { return a + b; }
  HETCCL_DEVICE Sum multiply(Sum a, Sum b) { return a * b; }
  HETCCL_DEVICE Sum scale(Sum a, Sum by) { return a * by; }
  HETCCL_DEVICE Sum divide(Sum a, const Arguments& by) { return a / (Sum)by.quotient; }
  HETCCL_DEVICE Sum bits(Op, Sum a, Sum) { return a; }  // never called: see HETCCL_BITWISE
};

// Accumulates 8- and 16-bit integers in wider sums: wrapping late gives the same bits.
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
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  HETCCL_DEVICE Word store(Sum sum) {
    Word word;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(word) : "f"(sum));
    return (Word)(sum != sum ? 0x7fc0u : word);
  }
#else
  HETCCL_DEVICE Word store(Sum sum) {
    const u32 bits = bits_of<u32>(sum);
    const u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (Word)(sum != sum ? 0x7fc0u : rounded);
  }
#endif
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
// Converts in hardware through fp16, which holds all values; storing saturates, and makes a NaN
// 0x7f.
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
  // The value is the upper half of an fp16.
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
