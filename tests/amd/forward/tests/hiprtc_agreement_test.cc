// The prelude compiles sources that AMD's hipRTC 6.4.3 compiles for gfx942, and rejects those that
// it rejects. The two lists hold AMD's answers: this program passes under AMD's own libhiprtc too.
#include <doctest/doctest.h>
#include <hip/hiprtc.h>

#include <string>

namespace {

// clang-format off
constexpr const char* kAccepted[] = {
    R"(x[0]=__popc(x[1]))",
    R"(x[0]=__popcll(u[1]))",
    R"(x[0]=__ffs(x[1]))",
    R"(x[0]=__ffsll(u[1]))",
    R"(x[0]=__clz(x[1]))",
    R"(x[0]=__brev(x[1]))",
    R"(x[0]=__byte_perm(1,2,3))",
    R"(x[0]=__funnelshift_l(1,2,3))",
    R"(x[0]=__fns(1,2,3))",
    R"(x[0]=__ldg(x))",
    R"(f[0]=__half2float(__float2half(f[1])))",
    R"(f[0]=__fdividef(f[1],f[2]))",
    R"(f[0]=__int_as_float(x[0]))",
    R"(u[0]=__float_as_uint(f[0]))",
    R"(f[0]=fminf(f[1],f[2]))",
    R"(f[0]=fmaxf(f[1],f[2]))",
    R"(f[0]=__fmaf_rn(f[0],f[1],f[2]))",
    R"(f[0]=__fadd_rn(f[0],f[1]))",
    R"(x[0]=min(x[1],x[2]))",
    R"(f[0]=max(f[1],f[2]))",
    R"(x[0]=isnan(f[0]))",
    R"(atomicAdd(x,1))",
    R"(atomicAdd_system(x,1))",
    R"(atomicCAS_system(x,1,2))",
    R"(atomicExch(u,1ull))",
    R"(atomicMax_system(x,1))",
    R"(x[0]=clock())",
    R"(u[0]=clock64())",
    R"(u[0]=wall_clock64())",
    R"(__threadfence())",
    R"(__threadfence_block())",
    R"(__threadfence_system())",
    R"(__syncthreads())",
    R"(x[0]=__syncthreads_count(1))",
    R"(x[0]=__syncthreads_or(1))",
    R"(int4 v=make_int4(1,2,3,4);x[0]=v.x)",
    R"(uint4 v=*(const uint4*)x; x[0]=v.w)",
    R"(ulonglong2 v; v.x=1; u[0]=v.x)",
    R"(x[0]=__builtin_popcount(x[1]))",
    R"(x[0]=__builtin_clz(x[1]))",
    R"(x[0]=__builtin_expect(x[1],1))",
    R"(x[0]=__atomic_load_n(x,__ATOMIC_ACQUIRE))",
    R"(__atomic_store_n(x,1,__ATOMIC_RELEASE))",
    R"(__scoped_atomic_store_n(x,1,__ATOMIC_RELEASE,__MEMORY_SCOPE_SYSTEM))",
    R"(__builtin_memcpy(x,f,4))",
    R"(memcpy(x,f,4))",
    R"(x[0]=(int)sizeof(size_t))",
    R"(x[0]=(int)sizeof(__half))",
    R"(x[0]=(int)sizeof(_Float16))",
    R"(x[0]=(int)sizeof(__bf16))",
    R"(__builtin_trap())",
    R"(asm volatile("" ::: "memory"))",
    R"(__builtin_unreachable())",
    R"(x[0]=__shfl(x[1],0))",
    R"(x[0]=__shfl_down(x[1],1))",
    R"(x[0]=__hip_atomic_fetch_sub(x,1,__ATOMIC_RELAXED,__HIP_MEMORY_SCOPE_AGENT))",
    R"(x[0]=__hip_atomic_fetch_max(x,1,__ATOMIC_RELAXED,__HIP_MEMORY_SCOPE_AGENT))",
    R"(x[0]=__hip_atomic_fetch_xor(x,1,__ATOMIC_RELAXED,__HIP_MEMORY_SCOPE_AGENT))",
    R"(f[0]=__hip_atomic_fetch_add(f,1.0f,__ATOMIC_RELAXED,__HIP_MEMORY_SCOPE_AGENT))",
    R"(int w=x[0]; x[1]=__hip_atomic_compare_exchange_weak(x,&w,1,__ATOMIC_RELAXED,)"
    R"(__ATOMIC_RELAXED,__HIP_MEMORY_SCOPE_AGENT))",
    R"(x[0]=(int)sizeof(std::uint32_t))",
    R"(static_assert(sizeof(int)==4,""))",
    R"(__atomic_thread_fence(__ATOMIC_SEQ_CST))",
    R"(x[0]=__scoped_atomic_load_n(x,__ATOMIC_ACQUIRE,__MEMORY_SCOPE_DEVICE))",
    R"(x[0]=__scoped_atomic_fetch_add(x,1,__ATOMIC_RELAXED,__MEMORY_SCOPE_WRKGRP))",
    R"(x[0]=__builtin_ctz(x[1]))",
    R"(x[0]=__builtin_bit_cast(int,f[0]))",
    R"(x[0]=__atomic_exchange_n(x,2,__ATOMIC_ACQ_REL))",
    R"(u[0]=__hip_atomic_fetch_max(u,1ull,__ATOMIC_RELAXED,__HIP_MEMORY_SCOPE_AGENT))",
    R"(unsigned long*l=(unsigned long*)u; l[0]=__hip_atomic_fetch_add(l,1ul,)"
    R"(__ATOMIC_RELAXED,__HIP_MEMORY_SCOPE_AGENT))",
    R"(f[0]=__saturatef(f[0]))",
    R"(f[0]=rsqrtf(f[0]))",
    R"(f[0]=__expf(f[0]))",
    R"(f[0]=__frcp_rn(f[1]))",
    R"(x[0]=__float2int_rn(f[0]))",
    R"(x[0]=__mul24(1,2))",
    R"(x[0]=__mulhi(1,2))",
    R"(x[0]=__umulhi(1,2))",
    R"(half h=f[0];f[1]=h)",
    R"(printf("x"))",
    R"(x[0]=__builtin_amdgcn_mbcnt_hi(~0u,__builtin_amdgcn_mbcnt_lo(~0u,0u)))",
    R"(x[0]=__builtin_amdgcn_readlane(x[0],1))",
    R"(__builtin_amdgcn_s_setprio(1))",
    R"(__builtin_amdgcn_wave_barrier())",
    R"(__builtin_amdgcn_sched_barrier(0))",
    R"(__builtin_amdgcn_s_waitcnt(0))",
    R"(volatile unsigned char*b=(volatile unsigned char*)x; b[0]=1;)"
    R"( x[0]=__hip_atomic_load((unsigned char*)x,__ATOMIC_RELAXED,__HIP_MEMORY_SCOPE_AGENT))",
};

constexpr const char* kRejected[] = {
    R"(x[0]=__ldcg(x))",
    R"(x[0]=__ldcs(x))",
    R"(x[0]=__ldcv(x))",
    R"(__stcg(x,1))",
    R"(__stwt(x,1))",
    R"(__trap())",
    R"(__brkpt())",
    R"(x[0]=__reduce_add_sync(1,2))",
    R"(x[0]=__match_any_sync(1,2))",
    R"(atomicAdd_block(x,1))",
    R"(x[0]=(int)sizeof(uint8_t))",
    R"(x[0]=(int)sizeof(uint16_t))",
    R"(x[0]=(int)sizeof(uintptr_t))",
    R"(x[0]=(int)sizeof(__hip_bfloat16))",
    R"(x[0]=threadIdx.x+hipThreadIdx_x)",
    R"(x[0]=__reduce_min_sync(1,2))",
    R"(x[0]=__vadd4(1,2))",
    R"(x[0]=__dp4a(1,2,3))",
    R"(x[0]=__isGlobal(x))",
    R"(size_t a=(size_t)__cvta_generic_to_shared(x);x[0]=a)",
    R"(assert(x))",
};
// clang-format on

hiprtcResult compile(const char* statement) {
  const std::string text =
      "extern \"C\" __global__ void k(int* x, float* f, unsigned long long* u) {\n" +
      std::string(statement) + ";\n}\n";
  hiprtcProgram program = nullptr;
  if (hiprtcCreateProgram(&program, text.c_str(), "test.hip", 0, nullptr, nullptr) !=
      HIPRTC_SUCCESS) {
    return HIPRTC_ERROR_INTERNAL_ERROR;
  }
  const char* options[] = {"--offload-arch=gfx942"};
  const hiprtcResult result = hiprtcCompileProgram(program, 1, options);
  (void)hiprtcDestroyProgram(&program);
  return result;
}

}  // namespace

TEST_CASE("what AMD's compiler accepts compiles") {
  for (const char* statement : kAccepted) {
    INFO(std::string(statement));
    CHECK(compile(statement) == HIPRTC_SUCCESS);
  }
}

TEST_CASE("what AMD's compiler rejects does not compile") {
  for (const char* statement : kRejected) {
    INFO(std::string(statement));
    CHECK(compile(statement) == HIPRTC_ERROR_COMPILATION);
  }
}
