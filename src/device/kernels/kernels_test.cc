// Compiles the kernels' source for the host and compares arithmetic, tails and alignment with its
// twin. tests/gpu covers the vendor's own conversions.
#include "device/kernels/kernels.h"

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "fake/reductions.h"

namespace {

struct Index {
  unsigned x;
};
Index blockIdx, threadIdx, blockDim, gridDim;
struct alignas(16) uint4 {
  unsigned words[4];
};
struct alignas(8) uint2 {
  unsigned words[2];
};
void __threadfence_system() {}
void __syncthreads() {}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wshadow"
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#include "device/kernels/element.cu"
#include "device/kernels/encoding.cu"
#include "device/kernels/reduce.cu"
#include "device/kernels/steps.cu"
#pragma GCC diagnostic pop

using hetccl::fake::ReductionCase;
using Kernel = void (*)(Arguments);

// The kernels by name, as a device finds them.
#define HETCCL_ENTRY(type, op) {"hetccl_reduce_" #type "_" #op, hetccl_reduce_##type##_##op}
#define HETCCL_SIGNED_ENTRIES(type) \
  HETCCL_ENTRY(type, max), HETCCL_ENTRY(type, min), HETCCL_ENTRY(type, avg)
#define HETCCL_ENTRIES(type)                                                      \
  HETCCL_SIGNED_ENTRIES(type), HETCCL_ENTRY(type, sum), HETCCL_ENTRY(type, prod), \
      HETCCL_ENTRY(type, premul_sum)
#define HETCCL_BITWISE_ENTRIES(type) \
  HETCCL_ENTRY(type, band), HETCCL_ENTRY(type, bor), HETCCL_ENTRY(type, bxor)
#define HETCCL_ENCODED_ENTRIES(type)                                      \
  HETCCL_ENTRY(encoded_##type, int8), HETCCL_ENTRY(encoded_##type, int4), \
      HETCCL_ENTRY(encoded_##type, e4m3), HETCCL_ENTRY(encoded_##type, e5m2)
const std::map<std::string, Kernel> kKernels = {
    HETCCL_BITWISE_ENTRIES(uint8),   HETCCL_BITWISE_ENTRIES(uint16),
    HETCCL_BITWISE_ENTRIES(uint32),  HETCCL_BITWISE_ENTRIES(uint64),
    HETCCL_SIGNED_ENTRIES(int8),     HETCCL_ENTRIES(uint8),
    HETCCL_SIGNED_ENTRIES(int16),    HETCCL_ENTRIES(uint16),
    HETCCL_SIGNED_ENTRIES(int32),    HETCCL_ENTRIES(uint32),
    HETCCL_SIGNED_ENTRIES(int64),    HETCCL_ENTRIES(uint64),
    HETCCL_ENTRIES(float8_e4m3),     HETCCL_ENTRIES(float8_e5m2),
    HETCCL_ENTRIES(float16),         HETCCL_ENTRIES(bfloat16),
    HETCCL_ENTRIES(float32),         HETCCL_ENTRIES(float64),
    HETCCL_ENCODED_ENTRIES(float16), HETCCL_ENCODED_ENTRIES(bfloat16),
    HETCCL_ENCODED_ENTRIES(float32)};

using BatchKernel = void (*)(Batch);

#define HETCCL_BATCH_ENTRY(type) {"hetccl_batch_" #type, hetccl_batch_##type}
const std::map<std::string, BatchKernel> kBatchKernels = {
    HETCCL_BATCH_ENTRY(int8),        HETCCL_BATCH_ENTRY(uint8),      HETCCL_BATCH_ENTRY(int16),
    HETCCL_BATCH_ENTRY(uint16),      HETCCL_BATCH_ENTRY(int32),      HETCCL_BATCH_ENTRY(uint32),
    HETCCL_BATCH_ENTRY(int64),       HETCCL_BATCH_ENTRY(uint64),     HETCCL_BATCH_ENTRY(float16),
    HETCCL_BATCH_ENTRY(bfloat16),    HETCCL_BATCH_ENTRY(float32),    HETCCL_BATCH_ENTRY(float64),
    HETCCL_BATCH_ENTRY(float8_e4m3), HETCCL_BATCH_ENTRY(float8_e5m2)};

// Uses a few small blocks, so that every loop runs more than once.
void launch(Kernel kernel, const Arguments& arguments) {
  gridDim = {3};
  blockDim = {8};
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(arguments);
}

// Runs one thread after the other, so its steps must not depend on each other.
void launch_batch(const Arguments& arguments, const ReductionCase& test) {
  namespace kernels = hetccl::device::kernels;
  const auto kernel =
      kBatchKernels.find(kernels::batch_name_of(kernels::kind_of(test.type, test.op)));
  REQUIRE(kernel != kBatchKernels.end());
  static_assert(sizeof(Batch) == sizeof(kernels::Batch));
  static_assert(sizeof(BatchStep) == sizeof(kernels::BatchStep));
  unsigned gate = 7, told = 0;
  Batch batch{};
  batch.n_steps = 3;
  batch.steps[0] = {WaitStep, 7, &gate};
  batch.steps[1] = {ReduceStep, static_cast<unsigned>(kernels::place_of(test.op)), nullptr};
  batch.steps[2] = {WriteStep, 9, &told};
  batch.works[0] = arguments;
  gridDim = {1};
  blockDim = {8};
  blockIdx.x = 0;
  for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel->second(batch);
  CHECK(told == 9);
}

void run(const ReductionCase& test, bool in_batch) {
  namespace kernels = hetccl::device::kernels;
  const size_t element = hetccl::size_of(test.type);
  const hetccl::fake::Expected expected = hetccl::fake::expected_of(test);
  // Aligned like allocations, so that only offsets make the difference.
  std::vector<std::vector<uint4>> memory(test.srcs.size() + 1);
  hetccl::Reduction r = test.reduction();
  for (size_t s = 0; s < test.srcs.size(); ++s) {
    memory[s].resize(test.srcs[s].bytes.size() / sizeof(uint4) + 1);
    std::memcpy(memory[s].data(), test.srcs[s].bytes.data(), test.srcs[s].bytes.size());
    r.srcs[s] = reinterpret_cast<std::byte*>(memory[s].data()) + test.srcs[s].offset * element;
  }
  memory.back().resize((test.count + 16) * element / sizeof(uint4) + 1);
  auto* apart = reinterpret_cast<std::byte*>(memory.back().data()) + test.dst_offset * element;
  r.dst = test.alias < 0 ? apart : const_cast<void*>(r.srcs[test.alias]);
  std::vector<uint4> residual(test.residual.bytes.size() / sizeof(uint4) + 1);
  auto* residual_bytes = reinterpret_cast<std::byte*>(residual.data());
  std::copy(test.residual.bytes.begin(), test.residual.bytes.end(), residual_bytes);
  if (!test.residual.bytes.empty()) r.residual = residual_bytes + test.residual.offset * element;
  const kernels::Arguments ours = kernels::arguments_of(r);
  Arguments arguments;
  static_assert(sizeof arguments == sizeof ours);
  std::memcpy(&arguments, &ours, sizeof arguments);
  const auto kernel =
      kKernels.find(test.encoded != 0 ? kernels::name_of(test.type, test.encoding.format)
                                      : kernels::name_of(test.type, test.op));
  REQUIRE(kernel != kKernels.end());
  in_batch ? launch_batch(arguments, test) : launch(kernel->second, arguments);
  CAPTURE(kernel->first);
  CAPTURE(test.count);
  CAPTURE(test.srcs.size());
  CHECK(std::memcmp(r.dst, expected.result.data(), expected.result.size()) == 0);
  CHECK(std::equal(expected.residual.begin(), expected.residual.end(), residual_bytes));
}

}  // namespace

TEST_CASE("kernels give the bits of base/reduce.h") {
  for (const bool in_batch : {false, true}) {
    hetccl::fake::for_each_reduction(5000, [&](const ReductionCase& test) { run(test, in_batch); });
  }
}

TEST_CASE("a batch copies bytes from anywhere to anywhere") {
  for (const size_t bytes : {0, 1, 15, 16, 17, 300, 1000}) {
    for (const size_t offset : {0, 1, 8}) {
      std::vector<uint4> from(80), to(80);
      auto* src = reinterpret_cast<unsigned char*>(from.data()) + 3;
      auto* dst = reinterpret_cast<unsigned char*>(to.data()) + 3 + offset;
      for (size_t i = 0; i < bytes; ++i) src[i] = static_cast<unsigned char>(i * 7 + 1);
      Batch batch{};
      batch.n_steps = 1;
      batch.steps[0] = {CopyStep, 0, nullptr};
      batch.works[0].dst = dst;
      batch.works[0].srcs[0] = src;
      batch.works[0].n_srcs = 1;
      batch.works[0].count = bytes;
      blockDim = {8};
      for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) hetccl_batch_uint8(batch);
      CHECK(std::memcmp(dst, src, bytes) == 0);
      CHECK(dst[-1] == 0);
      CHECK(dst[bytes] == 0);
    }
  }
}

TEST_CASE("kernels give the bits of base/encoding.h") {
  hetccl::fake::for_each_encoded_reduction(5000,
                                           [](const ReductionCase& test) { run(test, false); });
}

TEST_CASE("the text that is compiled is the files") {
  const std::string folder = std::string(__FILE__).substr(0, std::string(__FILE__).rfind('/'));
  std::stringstream text;
  for (const char* name : {"/element.cu", "/reduce.cu", "/encoding.cu", "/steps.cu"}) {
    text << std::ifstream(folder + name).rdbuf();
  }
  CHECK(hetccl::device::kernels::source() == text.str());
}
