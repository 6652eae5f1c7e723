// The device's kernels: one source in the common subset of CUDA and HIP (element.cu, reduce.cu,
// encoding.cu, steps.cu), carried as text and compiled at run time for the device that is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/reduce.h"
#include "base/types.h"

namespace hetccl::device::kernels {

/// The arguments of a reduction's kernel: the twin of element.cu's.
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

/// The twins of steps.cu's: short work that one launch does.
struct BatchStep {
  enum class Kind : uint32_t { Wait, Write, Copy, Reduce } kind{};
  uint32_t value = 0;          ///< of the flag; of a reduction its operator's number
  const void* word = nullptr;  ///< of the flag
};
struct Batch {
  static constexpr size_t kMostSteps = 16, kMostWorks = 6;
  BatchStep steps[kMostSteps];
  Arguments works[kMostWorks];  ///< of copies and reductions, in their order
  uint32_t n_steps = 0;
};

inline constexpr unsigned kThreads = 512;  ///< of a block of a reduction, or of a batch
inline constexpr size_t kVectorBytes = 16;
inline constexpr const char* kWaitFlag = "hetccl_wait_flag";    ///< (word, value), one thread
inline constexpr const char* kWriteFlag = "hetccl_write_flag";  ///< the same
/// The source compiles in parts, each with -DHETCCL_PART=<0 ...>, side by side.
inline constexpr int kParts = 13;

/// The text of the files.
std::string_view source();
/// The kernel that reduces elements of `type` by `op`.
std::string name_of(DataType type, RedOp op);
/// The kernel of reductions whose operands may be encoded.
std::string name_of(DataType type, Format format);
/// The kernel of batches with reductions of `type` by `op`.
std::string batch_name_of(DataType type, RedOp op);
/// The operator's number in batches.
uint32_t number_of(RedOp op);
/// `reduction` as its kernel takes it.
Arguments arguments_of(const Reduction& reduction);

/// The compiled parts, as the device's runtime loads them.
using Images = std::vector<std::string>;

}  // namespace hetccl::device::kernels
