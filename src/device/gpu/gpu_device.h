// A GPU of any vendor as a Device, over the vendor's runtime as a table.
#pragma once

#include <memory>
#include <string>

#include "base/config.h"
#include "base/log.h"
#include "device/device.h"
#include "device/gpu/api.h"
#include "device/kernels/compiler.h"

namespace hetccl::device {

struct GpuOptions {
  int index = 0;       ///< as the vendor counts the GPUs that the process may see
  int64_t blocks = 8;  ///< thread blocks of a reduction at most; 0: as many as run at once
  std::shared_ptr<const kernels::Compiler> compiler;  ///< null: no kernels
  std::string cache;                                  ///< folder of compiled kernels
  Log log;
};

/// As the user's settings want GPU `index`, without a compiler.
GpuOptions options_of(const Config& config, int index);

class GpuDevice : public Device {
 public:
  /// Makes the device the calling thread's, for good, and what the thread calls breaks no graph
  /// that others record: for threads of hetccl's own.
  virtual void make_current() = 0;
  /// Of the host's memory, that it has taken for itself.
  [[nodiscard]] virtual size_t pinned_bytes() const = 0;
};

/// Loads everything that it will ever use, kernels included, so that enqueueing allocates, loads
/// and synchronises nothing; with a compiler and no cache that takes seconds. Without a compiler it
/// has no kKernels. Native streams are the vendor's; null is its default stream. Every call works
/// on any thread and leaves the thread's current device as it was. What is freed is kept for later;
/// allocating more than that may wait for the device.
/// InvalidArgument for an index that is none, Unsupported where streams cannot wait for flags.
Result<std::unique_ptr<GpuDevice>> make_gpu_device(std::shared_ptr<const gpu::Api> api,
                                                   const GpuOptions& options);

}  // namespace hetccl::device
