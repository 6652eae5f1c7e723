// The kernels' source, compiled for the host: its arithmetic, tails and alignment against its twin.
// What differs on a device (the vendor's own conversions) is tests/gpu's.
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

// A few small blocks, so that every loop goes round more than once.
void launch(Kernel kernel, const Arguments& arguments) {
  gridDim = {3};
  blockDim = {8};
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(arguments);
}

void run(const ReductionCase& test) {
  namespace kernels = hetccl::device::kernels;
  const size_t element = hetccl::size_of(test.type);
  const hetccl::fake::Expected expected = hetccl::fake::expected_of(test);
  // As allocations are: aligned, so that offsets are what makes the difference.
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
  launch(kernel->second, arguments);
  CAPTURE(kernel->first);
  CAPTURE(test.count);
  CAPTURE(test.srcs.size());
  CHECK(std::memcmp(r.dst, expected.result.data(), expected.result.size()) == 0);
  CHECK(std::equal(expected.residual.begin(), expected.residual.end(), residual_bytes));
}

}  // namespace

TEST_CASE("kernels give the bits of base/reduce.h") {
  hetccl::fake::for_each_reduction(5000, run);
}

TEST_CASE("kernels give the bits of base/encoding.h") {
  hetccl::fake::for_each_encoded_reduction(5000, run);
}

TEST_CASE("the text that is compiled is the files") {
  const std::string folder = std::string(__FILE__).substr(0, std::string(__FILE__).rfind('/'));
  std::stringstream text;
  for (const char* name : {"/element.cu", "/reduce.cu", "/encoding.cu"}) {
    text << std::ifstream(folder + name).rdbuf();
  }
  CHECK(hetccl::device::kernels::source() == text.str());
}
