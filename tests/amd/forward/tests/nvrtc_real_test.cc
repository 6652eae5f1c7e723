// The prelude compiles with NVIDIA's real NVRTC. It needs no GPU: NVRTC makes a cubin for sm_90.
#include <doctest/doctest.h>
#include <hip/hiprtc.h>

#include <string>
#include <vector>

namespace {

// A program as one writes it for hipRTC: its HIP branch is taken and NVIDIA's is an error.
constexpr char kProgram[] = R"hip(
#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#error "the program must not see NVIDIA's compiler"
#elif defined(__HIPCC_RTC__)
typedef unsigned long long ballot_mask;
#else
#error "no branch"
#endif

__device__ inline float sum(float value) {
  for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_xor(value, offset);
  value += __shfl(value, 0) + __shfl_down(value, 1) + __shfl_up(value, 1u, 16);
  return value;
}

__device__ inline unsigned load(const unsigned* flag) {
  return __hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}

extern "C" __global__ void kernel(float* data, unsigned* flag, unsigned long long* wide,
                                  volatile int* word) {
  __shared__ float shared[64];
  shared[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  while (load(flag) == 0) __builtin_amdgcn_s_sleep(1);
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
  data[threadIdx.x] = sum(shared[threadIdx.x]);
  ballot_mask mask = __ballot(data[threadIdx.x] > 0.0f);
  __threadfence_system();
  __hip_atomic_store(flag, 2u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
  __hip_atomic_store(wide, mask, __ATOMIC_SEQ_CST, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_add(wide, 1ull, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  __hip_atomic_fetch_add(flag, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_SYSTEM);
  __hip_atomic_fetch_add(word, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  __hip_atomic_fetch_or(flag, 4u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  __hip_atomic_exchange(flag, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  unsigned expected = 1;
  if (__hip_atomic_compare_exchange_strong(flag, &expected, 3u, __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM)) {
    wide[1] = wall_clock64() + __lane_id();
  }
  if (__any(1) && __all(1)) word[1] = __hip_atomic_load(word, __ATOMIC_SEQ_CST,
                                                        __HIP_MEMORY_SCOPE_AGENT);
  wide[2] = mask + static_cast<unsigned>(__builtin_amdgcn_readfirstlane(word[2]));
#if defined(__gfx942__)
  wide[3] = __builtin_amdgcn_s_memrealtime() + __builtin_amdgcn_s_memtime();
#endif
  __builtin_nontemporal_store(__builtin_nontemporal_load(data + 1), data);
}

union bits {
  _Float16 half;
  unsigned short word;
};

template <typename T>
__device__ inline T larger(T a, T b) {
  return a < b ? b : a;
}

extern "C" __global__ void halves(_Float16* a, __bf16* b, double* c, uint32_t* d, uint64_t* e) {
  a[0] = a[1] + a[2] * static_cast<_Float16>(3);
  b[0] = larger(b[1], b[2]);
  b[1] += a[0];
  c[0] = static_cast<double>(a[0]);
  bits both;
  both.half = a[3];
  d[0] = both.word + sizeof(_Float16);
  e[0] = static_cast<uint64_t>(b[0]);
}
)hip";

std::string log_of(hiprtcProgram program) {
  std::size_t bytes = 0;
  if (hiprtcGetProgramLogSize(program, &bytes) != HIPRTC_SUCCESS) return "";
  std::string text(bytes, '\0');
  if (hiprtcGetProgramLog(program, text.data()) != HIPRTC_SUCCESS) return "";
  return text.c_str();
}

hiprtcResult compile(hiprtcProgram program, const char* architecture) {
  const char* options[] = {architecture, "-std=c++17", "-O3"};
  return hiprtcCompileProgram(program, 3, options);
}

void check_compiles(const char* text, const char* architecture) {
  hiprtcProgram program = nullptr;
  REQUIRE(hiprtcCreateProgram(&program, text, "test.hip", 0, nullptr, nullptr) == HIPRTC_SUCCESS);
  const hiprtcResult result = compile(program, architecture);
  INFO(log_of(program));
  CHECK(result == HIPRTC_SUCCESS);
  std::size_t bytes = 0;
  REQUIRE(hiprtcGetCodeSize(program, &bytes) == HIPRTC_SUCCESS);
  REQUIRE(bytes > 4);
  std::string code(bytes, '\0');
  REQUIRE(hiprtcGetCode(program, code.data()) == HIPRTC_SUCCESS);
  CHECK(code.substr(1, 3) == "ELF");
  CHECK(hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS);
}

}  // namespace

TEST_CASE("a HIP program compiles for both wave sizes") {
  check_compiles(kProgram, "--offload-arch=gfx942");
  check_compiles(kProgram, "--offload-arch=gfx1100");
}

TEST_CASE("an error names the line of the user's text") {
  hiprtcProgram program = nullptr;
  REQUIRE(hiprtcCreateProgram(&program, "\n\nint x = y;\n", "test.hip", 0, nullptr, nullptr) ==
          HIPRTC_SUCCESS);
  CHECK(compile(program, "--offload-arch=gfx1100") == HIPRTC_ERROR_COMPILATION);
  const std::string log = log_of(program);
  INFO(log);
  CHECK((log.find("test.hip(3)") != std::string::npos ||  // NVRTC's form, and AMD's.
         log.find("test.hip:3:") != std::string::npos));
}

TEST_CASE("a program that needs NVIDIA's built-ins does not compile") {
  // The frame around the statements compiles.
  check_compiles("extern \"C\" __global__ void kernel(int* x) {\nx[0] = warpSize;\n}\n",
                 "--offload-arch=gfx942");
  for (const char* statement : {"__syncwarp();", "x[0] = __activemask();", "__nanosleep(1);",
                                "x[0] = __shfl_xor_sync(1, x[1], 2);",
                                "#ifdef __CUDACC_RTC__\nx[0] = 1;\n#else\n#error\n#endif"}) {
    hiprtcProgram program = nullptr;
    const std::string text =
        std::string("extern \"C\" __global__ void kernel(int* x) {\n") + statement + "\n}\n";
    REQUIRE(hiprtcCreateProgram(&program, text.c_str(), "test.hip", 0, nullptr, nullptr) ==
            HIPRTC_SUCCESS);
    INFO(std::string(statement));
    CHECK(compile(program, "--offload-arch=gfx1100") == HIPRTC_ERROR_COMPILATION);
  }
}

// HIP 6.4.3 has a constant warp size; from ROCm 7 on it is none. The library takes the later rule.
TEST_CASE("warpSize is no constant, as since ROCm 7") {
  hiprtcProgram program = nullptr;
  REQUIRE(hiprtcCreateProgram(
              &program,
              "extern \"C\" __global__ void kernel(int* x) { int y[warpSize]; *x = y[0]; }",
              "test.hip", 0, nullptr, nullptr) == HIPRTC_SUCCESS);
  CHECK(compile(program, "--offload-arch=gfx1100") == HIPRTC_ERROR_COMPILATION);
}
