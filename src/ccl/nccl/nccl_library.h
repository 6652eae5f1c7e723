// NCCL as a Library: the clusters of one GPU.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/reduction_set.h"
#include "ccl/ccl.h"
#include "ccl/nccl/api.h"

namespace hetccl::ccl {

/// What the adaptor needs of its GPU, and a seam's adaptor may not ask another seam for.
/// Thread-safe.
class Workspace {
 public:
  virtual ~Workspace() = default;
  /// Makes the GPU the calling thread's, for good, and what the thread calls breaks no graph that
  /// others record: for threads of this adaptor's own.
  virtual void make_current() = 0;
  virtual Result<void*> allocate(size_t bytes) = 0;
  virtual void free(void* memory) = 0;
  /// A native stream for this thread's use until `release`.
  virtual Result<void*> acquire_stream() = 0;
  virtual void release_stream(void* stream) = 0;
  /// The GPU's, as "sm_90" or "gfx90a:sramecc+:xnack-".
  [[nodiscard]] virtual std::string architecture() const = 0;
  /// Waits until all work of the stream is done; false when `give_up` says so first.
  virtual bool drain(void* stream, const std::function<bool()>& give_up) = 0;
};

/// NCCL takes the least compute capability of all GPUs.
inline constexpr Reach kNcclReach{.architectures = true};
/// RCCL joins GPUs of one architecture: it has failed on gfx1200 with gfx1201.
inline constexpr Reach kRcclReach{};
/// The reductions of the newest NCCL on GPUs of an architecture ("sm_90"); empty: the newest.
ReductionSet nccl_reductions(std::string_view architecture);
/// Those that hetccl asks of the newest RCCL on GPUs of an architecture ("gfx1100"). None of 8-bit
/// floats: they hang on gfx11 (ROCm/rocm-systems, pull request 2849), are of another format on
/// gfx942 (FNUZ), and have not been tried on other GPUs.
ReductionSet rccl_reductions(std::string_view architecture);

/// `init` runs on a thread of its own, which a failed attempt may leave behind until NCCL lets it
/// go: NCCL has no deadlines, and communicators made to return at once start a thread at every call
/// since 2.27. So a pair has a thread, too, while it is made. `init` also runs once whatever plans
/// use, so that later calls connect, allocate and load nothing, unless they are told to use another
/// algorithm. A communicator for a pair takes few of the GPU's blocks. Sums of int16 and uint16 do
/// not exist, those of 8-bit floats from Hopper on; averages of integers wrap in the element's
/// width before they are divided, and floating-point sums round as NCCL rounds.
std::unique_ptr<Library> make_nccl_library(std::shared_ptr<const nccl::Api> api,
                                           std::shared_ptr<Workspace> workspace, Reach reach);

}  // namespace hetccl::ccl
