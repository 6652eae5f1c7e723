// The differences of the two vendors, for the templates of calls.h.
#pragma once

#include <array>

#include "runtime/entries.h"
#include "runtime/numbers.h"

namespace hetccl::runtime {

/// The functions of the loaded library; null: it lacks one.
struct Functions {
  std::array<void*, kEntries.size()> entries{};
  void* version = nullptr;
  void* capture_info_with_edges = nullptr;
};

struct Cuda {
  static constexpr hetcclRuntimePlatform_t kPlatform = hetcclRuntimePlatformCuda;
  static constexpr const char* Entry::* kSymbol = &Entry::cuda;
  static constexpr int64_t Number::* kNumber = &Number::cuda;
  static constexpr const char* kVersion = "cudaRuntimeGetVersion";
  using FuncAttributes = CudaFuncAttributes;
  /// Written once, before the table that uses it is handed out: entries are plain functions, so
  /// they can only look here.
  static inline Functions functions;
};

struct Hip {
  static constexpr hetcclRuntimePlatform_t kPlatform = hetcclRuntimePlatformHip;
  static constexpr const char* Entry::* kSymbol = &Entry::hip;
  static constexpr int64_t Number::* kNumber = &Number::hip;
  static constexpr const char* kVersion = "hipRuntimeGetVersion";
  using FuncAttributes = HipFuncAttributes;
  static inline Functions functions;  ///< as Cuda's
};

/// CUDA 13 lacks cudaStreamGetCaptureInfo_v2. Its plain name, which had another signature before,
/// also returns edges.
inline constexpr const char* kCaptureInfoWithEdges = "cudaStreamGetCaptureInfo";
inline constexpr int kFirstCudaWithEdges = 13000;

}  // namespace hetccl::runtime
