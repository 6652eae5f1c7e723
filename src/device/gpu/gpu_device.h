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
  int index = 0;       ///< in the vendor's numbering of visible GPUs
  int64_t blocks = 8;  ///< maximum thread blocks of a reduction; 0: all that run at once
  std::shared_ptr<const kernels::Compiler> compiler;  ///< null: no kernels
  std::string cache;                                  ///< folder of compiled kernels
  Log log;
};

/// Returns the user's settings for GPU `index`, without a compiler.
GpuOptions options_of(const Config& config, int index);

class GpuDevice : public Device {
 public:
  /// Makes the device the calling thread's for good, and the thread's calls harmless to graphs that
  /// others capture. For threads of hetccl's own.
  virtual void make_current() = 0;
  /// Returns the bytes of pinned host memory that it has taken.
  [[nodiscard]] virtual size_t pinned_bytes() const = 0;
};

/// Loads everything that it will ever use, kernels included, so that enqueueing never allocates,
/// loads or synchronises. With a compiler and no cache that takes seconds. Without a compiler it
/// lacks kKernels. Native streams are the vendor's; null is its default stream. Any thread may call
/// it; the thread's current device stays as it was. Freed memory is kept for reuse; allocating
/// beyond that may wait for the device. Returns InvalidArgument for an invalid index, Unsupported
/// if streams cannot wait for flags.
Result<std::unique_ptr<GpuDevice>> make_gpu_device(std::shared_ptr<const gpu::Api> api,
                                                   const GpuOptions& options);

}  // namespace hetccl::device
