// The device's kernels: one source in the common subset of CUDA and HIP (element.cu, reduce.cu,
// encoding.cu, steps.cu), embedded as text and compiled at run time for the device found.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/reduce.h"
#include "base/types.h"

namespace hetccl::device::kernels {

/// The arguments of a reduction's kernel: twin of element.cu's.
struct Arguments {
  void* dst = nullptr;
  const void* srcs[Reduction::kMaxSources] = {};
  uint64_t count = 0;
  uint64_t factor = 0;
  uint32_t divisor = 1;
  float down = 1, quotient = 1;
  uint32_t n_srcs = 0;
  uint32_t encoded = 0;
  uint32_t block = 0;
  uint32_t salt = 0;
  uint32_t stochastic = 0;
  uint64_t first_element = 0;
  void* residual = nullptr;
};

/// Twins of steps.cu's: short work that one launch does.
struct BatchStep {
  enum class Kind : uint32_t { Wait, Write, Copy, Reduce } kind{};
  uint32_t value = 0;          ///< of the flag; of a reduction, its operator's number
  const void* word = nullptr;  ///< the flag
};
struct Batch {
  static constexpr size_t kMostSteps = 16, kMostWorks = 6;
  BatchStep steps[kMostSteps];
  Arguments works[kMostWorks];  ///< of copies and reductions, in order
  uint32_t n_steps = 0;
};

/// Twin of steps.cu's: copies that one launch does.
struct CopyList {
  static constexpr size_t kMost = 128;
  struct {
    void* dst;
    const void* src;
    uint64_t bytes;
  } copies[kMost];
  uint32_t n = 0;
};

inline constexpr unsigned kThreads = 512;  ///< per block of a reduction, or of a batch
inline constexpr size_t kVectorBytes = 16;
inline constexpr const char* kWaitFlag = "hetccl_wait_flag";    ///< (word, value), one thread
inline constexpr const char* kWriteFlag = "hetccl_write_flag";  ///< (word, value), one thread
inline constexpr const char* kCopyList = "hetccl_copy_list";    ///< (CopyList)
/// The source compiles in parts, each with -DHETCCL_PART=<0 ...>, in parallel.
inline constexpr int kParts = 13;

/// Returns the text of the files.
std::string_view source();
/// Returns the name of the kernel that reduces elements of `type` by `op`.
std::string name_of(DataType type, RedOp op);
/// Returns the name of the kernel for reductions with encoded operands.
std::string name_of(DataType type, Format format);
/// Returns the type whose kernels reduce elements of `type` by `op`: wrapping and bitwise operators
/// give the same bits for signed and unsigned types.
DataType kind_of(DataType type, RedOp op);
/// Returns the name of the kernel for batches with reductions of that kind.
std::string batch_name_of(DataType kind);
/// The operators in element.cu's order.
inline constexpr std::array kOps = {RedOp::Sum,  RedOp::Prod, RedOp::Max,
                                    RedOp::Min,  RedOp::Avg,  RedOp::PreMulSum,
                                    RedOp::Band, RedOp::Bor,  RedOp::Bxor};
/// Returns the operator's index; kOps.size() if it is none of them.
[[nodiscard]] inline size_t place_of(RedOp op) {
  return static_cast<size_t>(std::find(kOps.begin(), kOps.end(), op) - kOps.begin());
}
/// Converts `reduction` for its kernel.
Arguments arguments_of(const Reduction& reduction);

/// The compiled parts, as the device's runtime loads them.
using Images = std::vector<std::string>;

}  // namespace hetccl::device::kernels
