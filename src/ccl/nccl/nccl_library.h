// NCCL as a Library, for clusters of one vendor's GPUs.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/reduction_set.h"
#include "ccl/ccl.h"
#include "ccl/nccl/api.h"

namespace hetccl::ccl {

/// The GPU services that the adaptor needs; one seam's adaptor may not include another seam.
/// Thread-safe.
class Workspace {
 public:
  virtual ~Workspace() = default;
  /// Makes the GPU the calling thread's for good, and the thread's calls harmless to graphs that
  /// others capture. For threads of this adaptor's own.
  virtual void make_current() = 0;
  virtual Result<void*> allocate(size_t bytes) = 0;
  virtual void free(void* memory) = 0;
  /// Returns a native stream for this thread's use until `release_stream`.
  virtual Result<void*> acquire_stream() = 0;
  virtual void release_stream(void* stream) = 0;
  /// Returns the GPU's architecture, as "sm_90" or "gfx90a:sramecc+:xnack-".
  [[nodiscard]] virtual std::string architecture() const = 0;
  /// Waits until all work of the stream is done. Returns false if `give_up` returns true first.
  virtual bool drain(void* stream, const std::function<bool()>& give_up) = 0;
};

/// NCCL uses the lowest compute capability of all GPUs.
inline constexpr Reach kNcclReach{.architectures = true};
/// RCCL only joins GPUs of one architecture: it has failed on gfx1200 with gfx1201.
inline constexpr Reach kRcclReach{};
/// Returns the reductions of the newest NCCL on GPUs of an architecture ("sm_90"); empty: the
/// newest.
ReductionSet nccl_reductions(std::string_view architecture);
/// Returns the reductions that hetccl uses of the newest RCCL on GPUs of an architecture
/// ("gfx1100"). Excludes 8-bit floats: they hang on gfx11 (ROCm/rocm-systems, pull request 2849),
/// have another format on gfx942 (FNUZ), and are untested on other GPUs.
ReductionSet rccl_reductions(std::string_view architecture);

/// `init` runs on a separate thread, which a failed attempt may leave behind until NCCL returns:
/// NCCL has no deadlines, and non-blocking communicators start a thread at every call since 2.27.
/// So a pair also has a thread while it is made. `init` also runs every call that plans use once,
/// so that later calls connect, allocate and load nothing, unless told to use another algorithm. A
/// pair's communicator takes few of the GPU's blocks. int16 and uint16 cannot be summed, 8-bit
/// floats only from Hopper on. Averages of integers wrap in the element's width before the
/// division, and floating-point sums round as in NCCL.
std::unique_ptr<Library> make_nccl_library(std::shared_ptr<const nccl::Api> api,
                                           std::shared_ptr<Workspace> workspace, Reach reach);

}  // namespace hetccl::ccl
