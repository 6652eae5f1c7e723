#include "hiprtc/prelude.h"

namespace forward {
namespace {

// A wave of gfx9 has 64 lanes and NVIDIA's warp has 32, so two warps stand for one wave. A shuffle
// across the two warps traps, because a wrong value would look like an error of the program under
// test. __FORWARD_WAVE is 64 or 32, by the AMD architecture of the compilation.
constexpr char kBuiltIns[] = R"prelude(
#undef __CUDACC_RTC__
#undef __CUDACC__
#undef __NVCC__
#define __HIPCC_RTC__ 1
#define __HIPCC__ 1
#define __HIP__ 1
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_DEVICE_COMPILE__ 1
#define __AMDGCN__ 1
#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
#ifndef __ATOMIC_RELAXED
#define __ATOMIC_RELAXED 0
#define __ATOMIC_CONSUME 1
#define __ATOMIC_ACQUIRE 2
#define __ATOMIC_RELEASE 3
#define __ATOMIC_ACQ_REL 4
#define __ATOMIC_SEQ_CST 5
#endif

#define __AMDGCN_WAVEFRONT_SIZE __FORWARD_WAVE
#define __AMDGCN_WAVEFRONT_SIZE__ __FORWARD_WAVE

// hipRTC declares these types, with 64-bit ones of long long.
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef signed int int32_t;
typedef signed long long int64_t;
namespace std {
using ::int32_t;
using ::int64_t;
using ::uint32_t;
using ::uint64_t;
}

// hipRTC also declares this name at global scope (hip_cooperative_groups_helper.h, line 59).
#if __FORWARD_WAVE == 32
typedef unsigned int lane_mask;
#else
typedef unsigned long long lane_mask;
#endif

// Since ROCm 7, AMD's warp size is no constant expression, so no array may have it as bound.
__device__ inline int __forward_warp_size() { return __FORWARD_WAVE; }
#define warpSize __forward_warp_size()

__device__ inline unsigned __forward_thread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

__device__ inline unsigned __lane_id() { return __forward_thread() & (__FORWARD_WAVE - 1); }

// Traps if `lane` of the wave runs in the other one of the two warps that stand for a wave.
__device__ inline void __forward_need(unsigned lane) {
  if ((lane ^ __lane_id()) & 32) asm volatile("trap;");
}

// Traps if the wave has threads in both warps, for operations over all lanes.
__device__ inline void __forward_need_one_warp() {
  unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  unsigned first = __forward_thread() & ~(__FORWARD_WAVE - 1u);
  if (__FORWARD_WAVE == 64 && threads > first + 32) asm volatile("trap;");
}

// One tick of s_sleep is 64 cycles, about 32 ns.
__device__ inline void __forward_sleep(int ticks) { __nanosleep(ticks * 32); }

__device__ inline int __forward_width(int width) { return width > 32 ? 32 : width; }

template <typename T>
__device__ inline T __forward_shfl(T value, int source, int width = __FORWARD_WAVE) {
  if (width > 32) __forward_need(source & 63);
  return __shfl_sync(__activemask(), value, source & 31, __forward_width(width));
}

template <typename T>
__device__ inline T __forward_shfl_xor(T value, int mask, int width = __FORWARD_WAVE) {
  if (width > 32) __forward_need(__lane_id() ^ mask);
  return __shfl_xor_sync(__activemask(), value, mask & 31, __forward_width(width));
}

template <typename T>
__device__ inline T __forward_shfl_down(T value, unsigned delta, int width = __FORWARD_WAVE) {
  unsigned lane = __lane_id() + delta;
  if (width > 32 && lane < 64) __forward_need(lane);
  return __shfl_down_sync(__activemask(), value, delta, __forward_width(width));
}

template <typename T>
__device__ inline T __forward_shfl_up(T value, unsigned delta, int width = __FORWARD_WAVE) {
  if (width > 32 && delta <= __lane_id()) __forward_need(__lane_id() - delta);
  return __shfl_up_sync(__activemask(), value, delta, __forward_width(width));
}

template <typename T>
__device__ inline T __forward_readfirstlane(T value) {
  return __shfl_sync(__activemask(), value, __ffs(__activemask()) - 1);
}

// HIP's mask has 64 bits; the upper warp of a wave sets the upper ones.
__device__ inline unsigned long long __forward_ballot(int predicate) {
  __forward_need_one_warp();
  return static_cast<unsigned long long>(__ballot_sync(__activemask(), predicate))
         << (__lane_id() & 32);
}
__device__ inline int __forward_any(int predicate) {
  __forward_need_one_warp();
  return __any_sync(__activemask(), predicate);
}
__device__ inline int __forward_all(int predicate) {
  __forward_need_one_warp();
  return __all_sync(__activemask(), predicate);
}

// NVRTC declares warp functions of these names for old GPUs, so macros take their place.
#define __shfl __forward_shfl
#define __shfl_xor __forward_shfl_xor
#define __shfl_down __forward_shfl_down
#define __shfl_up __forward_shfl_up
#define __ballot __forward_ballot
#define __any __forward_any
#define __all __forward_all

#define __builtin_amdgcn_s_sleep(ticks) __forward_sleep(ticks)
#define __builtin_amdgcn_s_barrier() __syncthreads()
#define __builtin_amdgcn_s_waitcnt(counters) ((void)(counters))
#define __builtin_amdgcn_sched_barrier(mask) ((void)(mask))
#define __builtin_amdgcn_wavefrontsize() __FORWARD_WAVE
#if defined(__GFX9__) || defined(__GFX10__)
#define __builtin_amdgcn_s_memtime() static_cast<unsigned long long>(clock64())
#define __builtin_amdgcn_s_memrealtime() static_cast<unsigned long long>(wall_clock64())
#endif
#define __builtin_amdgcn_workitem_id_x() threadIdx.x
#define __builtin_amdgcn_workgroup_id_x() blockIdx.x
#define __builtin_amdgcn_readfirstlane(value) __forward_readfirstlane(value)
#define __builtin_amdgcn_fence(order, scope) __forward_fence(order, scope)
#define __builtin_nontemporal_load(pointer) (*(pointer))
#define __builtin_nontemporal_store(value, pointer) ((void)(*(pointer) = (value)))

__device__ inline long long wall_clock64() {
  long long nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

// AMD names the scopes "", "agent", "workgroup", "wavefront" and "singlethread".
__device__ inline void __forward_fence(int order, const char* scope) {
  if (order == __ATOMIC_RELAXED) return;
  if (scope[0] == 's' || scope[0] == 'w') {
    __threadfence_block();
  } else if (scope[0] == 'a') {
    __threadfence();
  } else {
    __threadfence_system();
  }
}

__device__ inline void __forward_scope_fence(int scope) {
  if (scope == __HIP_MEMORY_SCOPE_SYSTEM) {
    __threadfence_system();
  } else if (scope == __HIP_MEMORY_SCOPE_AGENT) {
    __threadfence();
  } else {
    __threadfence_block();
  }
}

__device__ inline void __forward_before(int order, int scope) {
  if (order == __ATOMIC_RELEASE || order >= __ATOMIC_ACQ_REL) __forward_scope_fence(scope);
}

__device__ inline void __forward_after(int order, int scope) {
  if (order == __ATOMIC_CONSUME || order == __ATOMIC_ACQUIRE || order >= __ATOMIC_ACQ_REL) {
    __forward_scope_fence(scope);
  }
}

template <unsigned Bytes>
struct __forward_word {};
template <>
struct __forward_word<1> {
  typedef unsigned char type;
};
template <>
struct __forward_word<2> {
  typedef unsigned short type;
};
template <>
struct __forward_word<4> {
  typedef unsigned type;
};
template <>
struct __forward_word<8> {
  typedef unsigned long long type;
};
#define __FORWARD_WORD(T) typename __forward_word<sizeof(T)>::type

// The lambda-free union keeps the bits of T; NVRTC has no memcpy header.
template <typename To, typename From>
__device__ inline To __forward_bits(From from) {
  union {
    From from;
    To to;
  } both = {from};
  return both.to;
}

__device__ inline void __forward_ld(unsigned char& to, const void* from) {
  unsigned short wide;
  asm volatile("ld.relaxed.sys.u8 %0, [%1];" : "=h"(wide) : "l"(from) : "memory");
  to = static_cast<unsigned char>(wide);
}
__device__ inline void __forward_ld(unsigned short& to, const void* from) {
  asm volatile("ld.relaxed.sys.u16 %0, [%1];" : "=h"(to) : "l"(from) : "memory");
}
__device__ inline void __forward_ld(unsigned& to, const void* from) {
  asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(to) : "l"(from) : "memory");
}
__device__ inline void __forward_ld(unsigned long long& to, const void* from) {
  asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(to) : "l"(from) : "memory");
}
__device__ inline void __forward_st(void* to, unsigned char value) {
  unsigned short wide = value;
  asm volatile("st.relaxed.sys.u8 [%0], %1;" : : "l"(to), "h"(wide) : "memory");
}
__device__ inline void __forward_st(void* to, unsigned short value) {
  asm volatile("st.relaxed.sys.u16 [%0], %1;" : : "l"(to), "h"(value) : "memory");
}
__device__ inline void __forward_st(void* to, unsigned value) {
  asm volatile("st.relaxed.sys.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}
__device__ inline void __forward_st(void* to, unsigned long long value) {
  asm volatile("st.relaxed.sys.u64 [%0], %1;" : : "l"(to), "l"(value) : "memory");
}

template <typename T>
struct __forward_value {
  typedef T type;
};
template <typename T>
struct __forward_value<const T> {
  typedef typename __forward_value<T>::type type;
};
template <typename T>
struct __forward_value<volatile T> {
  typedef T type;
};
template <typename T>
struct __forward_value<const volatile T> {
  typedef T type;
};

template <typename P>
__device__ inline typename __forward_value<P>::type __hip_atomic_load(P* from, int order,
                                                                      int scope) {
  __FORWARD_WORD(P) word;
  if (order == __ATOMIC_SEQ_CST) __forward_scope_fence(scope);
  __forward_ld(word, (const void*)from);
  __forward_after(order, scope);
  return __forward_bits<typename __forward_value<P>::type>(word);
}

template <typename P, typename V>
__device__ inline void __hip_atomic_store(P* to, V value, int order, int scope) {
  typedef typename __forward_value<P>::type T;
  __forward_before(order, scope);
  __forward_st((void*)to, __forward_bits<__FORWARD_WORD(T)>(static_cast<T>(value)));
  if (order == __ATOMIC_SEQ_CST) __forward_scope_fence(scope);
}

// NVIDIA's atomics lack the types long and, but for additions, signed long long.
template <typename T>
__device__ inline T __forward_integer_add(T* at, T value) {
  typedef __FORWARD_WORD(T) Word;
  return __forward_bits<T>(atomicAdd_system((Word*)at, __forward_bits<Word>(value)));
}
template <typename T>
__device__ inline T __forward_add(T* at, T value) {
  return __forward_integer_add(at, value);
}
__device__ inline float __forward_add(float* at, float value) {
  return atomicAdd_system(at, value);
}
__device__ inline double __forward_add(double* at, double value) {
  return atomicAdd_system(at, value);
}
template <typename T>
__device__ inline T __forward_sub(T* at, T value) {
  return __forward_add(at, static_cast<T>(-value));
}
template <typename T>
__device__ inline T __forward_max(T* at, T value) {
  return atomicMax_system(at, value);
}
template <typename T>
__device__ inline T __forward_min(T* at, T value) {
  return atomicMin_system(at, value);
}
#define __FORWARD_BITWISE(name, nvidia)                                             \
  template <typename T>                                                             \
  __device__ inline T name(T* at, T value) {                                        \
    typedef __FORWARD_WORD(T) Word;                                                 \
    return __forward_bits<T>(nvidia((Word*)at, __forward_bits<Word>(value)));       \
  }
__FORWARD_BITWISE(__forward_or, atomicOr_system)
__FORWARD_BITWISE(__forward_and, atomicAnd_system)
__FORWARD_BITWISE(__forward_xor, atomicXor_system)
__FORWARD_BITWISE(__forward_exchange, atomicExch_system)
#undef __FORWARD_BITWISE

#define __FORWARD_READ_MODIFY_WRITE(hip, nvidia)                                            \
  template <typename P, typename V>                                                         \
  __device__ inline typename __forward_value<P>::type hip(P* at, V value, int order,        \
                                                          int scope) {                      \
    typedef typename __forward_value<P>::type T;                                            \
    __forward_before(order, scope);                                                         \
    T old = nvidia((T*)at, static_cast<T>(value));                                          \
    __forward_after(order, scope);                                                          \
    return old;                                                                             \
  }
__FORWARD_READ_MODIFY_WRITE(__hip_atomic_fetch_add, __forward_add)
__FORWARD_READ_MODIFY_WRITE(__hip_atomic_fetch_sub, __forward_sub)
__FORWARD_READ_MODIFY_WRITE(__hip_atomic_fetch_max, __forward_max)
__FORWARD_READ_MODIFY_WRITE(__hip_atomic_fetch_min, __forward_min)
__FORWARD_READ_MODIFY_WRITE(__hip_atomic_fetch_or, __forward_or)
__FORWARD_READ_MODIFY_WRITE(__hip_atomic_fetch_and, __forward_and)
__FORWARD_READ_MODIFY_WRITE(__hip_atomic_fetch_xor, __forward_xor)
__FORWARD_READ_MODIFY_WRITE(__hip_atomic_exchange, __forward_exchange)
#undef __FORWARD_READ_MODIFY_WRITE

template <typename P, typename V>
__device__ inline bool __hip_atomic_compare_exchange_strong(P* at, V* expected, V desired,
                                                            int success, int failure,
                                                            int scope) {
  typedef __FORWARD_WORD(V) Word;
  (void)failure;
  __forward_before(success, scope);
  Word wanted = __forward_bits<Word>(*expected);
  Word found = atomicCAS_system((Word*)at, wanted, __forward_bits<Word>(desired));
  __forward_after(success, scope);
  *expected = __forward_bits<V>(found);
  return found == wanted;
}
#define __hip_atomic_compare_exchange_weak __hip_atomic_compare_exchange_strong

// Clang's atomics without a scope are system-wide; its own scopes run from system (0) downwards.
#define __MEMORY_SCOPE_SYSTEM 0
#define __MEMORY_SCOPE_DEVICE 1
#define __MEMORY_SCOPE_WRKGRP 2
#define __MEMORY_SCOPE_WVFRNT 3
#define __MEMORY_SCOPE_SINGLE 4
#define __atomic_load_n(at, order) __hip_atomic_load(at, order, 5)
#define __atomic_store_n(at, value, order) __hip_atomic_store(at, value, order, 5)
#define __atomic_fetch_add(at, value, order) __hip_atomic_fetch_add(at, value, order, 5)
#define __atomic_exchange_n(at, value, order) __hip_atomic_exchange(at, value, order, 5)
#define __atomic_thread_fence(order) __forward_fence(order, "")
#define __scoped_atomic_load_n(at, order, scope) __hip_atomic_load(at, order, 5 - (scope))
#define __scoped_atomic_store_n(at, value, order, scope) \
  __hip_atomic_store(at, value, order, 5 - (scope))
#define __scoped_atomic_fetch_add(at, value, order, scope) \
  __hip_atomic_fetch_add(at, value, order, 5 - (scope))

// Clang's and AMD's remaining built-ins that programs use.
#define __builtin_trap() asm volatile("trap;")
#define __builtin_popcount(value) __popc(value)
#define __builtin_popcountll(value) __popcll(value)
#define __builtin_clz(value) __clz(static_cast<int>(value))
#define __builtin_ctz(value) (__ffs(static_cast<int>(value)) - 1)
#define __builtin_memcpy(to, from, bytes) memcpy(to, from, bytes)
#define __builtin_amdgcn_s_setprio(priority) ((void)(priority))
#define __builtin_amdgcn_wave_barrier() ((void)0)
#define __builtin_amdgcn_readlane(value, lane) __forward_shfl(value, lane)
#define __builtin_amdgcn_mbcnt_lo(mask, base) \
  ((base) + __popc((mask) & __forward_lanes_below(__lane_id())))
#define __builtin_amdgcn_mbcnt_hi(mask, base) \
  ((base) + (__lane_id() < 32 ? 0 : __popc((mask) & __forward_lanes_below(__lane_id() - 32))))
__device__ inline unsigned __forward_lanes_below(unsigned lane) {
  return lane > 31 ? ~0u : (1u << lane) - 1;
}
)prelude";

// AMD's compiler has the types _Float16 and __bf16. Their arithmetic is that of float, rounded when
// stored, which gives the same value for single operations.
constexpr char kHalfTypes[] = R"prelude(
#define __FORWARD_HALF_TYPE(name, widen, narrow)                                        \
  struct name {                                                                         \
    unsigned short __bits;                                                              \
    name() = default;                                                                   \
    __device__ name(float value) { asm(narrow : "=h"(__bits) : "f"(value)); }           \
    __device__ operator float() const {                                                 \
      float value;                                                                      \
      asm(widen : "=f"(value) : "h"(__bits));                                           \
      return value;                                                                     \
    }                                                                                   \
    __device__ name& operator+=(float other) { return *this = name(*this + other); }    \
    __device__ name& operator-=(float other) { return *this = name(*this - other); }    \
    __device__ name& operator*=(float other) { return *this = name(*this * other); }    \
    __device__ name& operator/=(float other) { return *this = name(*this / other); }    \
  };
__FORWARD_HALF_TYPE(_Float16, "cvt.f32.f16 %0, %1;", "cvt.rn.f16.f32 %0, %1;")
__FORWARD_HALF_TYPE(__bf16, "{mov.b32 %0, {0, %1};}", "cvt.rn.bf16.f32 %0, %1;")
#undef __FORWARD_HALF_TYPE
typedef _Float16 __half;
typedef _Float16 half;
__device__ inline __half __float2half(float value) { return __half(value); }
__device__ inline float __half2float(__half value) { return value; }
)prelude";

// Last: names that NVRTC has and that AMD's compiler lacks, or has with another meaning.
constexpr char kPoison[] = R"prelude(
#define __nanosleep __forward_hip_has_no_nanosleep
#define __syncwarp __forward_hip_has_no_syncwarp
#define __trap __forward_hip_has_no_trap
#define __brkpt __forward_hip_has_no_brkpt
#define __ldca __forward_hip_has_no_ldca
#define __ldcg __forward_hip_has_no_ldcg
#define __ldcs __forward_hip_has_no_ldcs
#define __ldcv __forward_hip_has_no_ldcv
#define __stcg __forward_hip_has_no_stcg
#define __stcs __forward_hip_has_no_stcs
#define __stwb __forward_hip_has_no_stwb
#define __stwt __forward_hip_has_no_stwt
#define atomicAdd_block __forward_hip_has_no_atomicAdd_block
#undef assert
#define assert __forward_hiprtc_has_no_assert
#define __reduce_add_sync __forward_hip_has_no_reduce_add_sync
#define __reduce_min_sync __forward_hip_has_no_reduce_min_sync
#define __reduce_max_sync __forward_hip_has_no_reduce_max_sync
#define __vadd4 __forward_hip_has_no_vadd4
#define __dp4a __forward_hip_has_no_dp4a
#define __isGlobal __forward_hip_has_no_isGlobal
#define __cvta_generic_to_shared __forward_hip_has_no_cvta_generic_to_shared
#define __cvta_generic_to_global __forward_hip_has_no_cvta_generic_to_global
#define __match_any_sync __forward_hip_has_no_match_any_sync
#ifdef HIP_ENABLE_WARP_SYNC_BUILTINS
#define __activemask() __ballot(1)
#else
#define __activemask __forward_hip_has_no_activemask
#define __shfl_sync __forward_hip_has_no_shfl_sync
#define __shfl_xor_sync __forward_hip_has_no_shfl_xor_sync
#define __shfl_down_sync __forward_hip_has_no_shfl_down_sync
#define __shfl_up_sync __forward_hip_has_no_shfl_up_sync
#define __ballot_sync __forward_hip_has_no_ballot_sync
#define __any_sync __forward_hip_has_no_any_sync
#define __all_sync __forward_hip_has_no_all_sync
#endif
)prelude";

}  // namespace

std::string prelude() {
  return std::string(kBuiltIns) + kHalfTypes + kPoison;
}

}  // namespace forward
