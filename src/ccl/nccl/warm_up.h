// Makes a communicator's first calls, which connect, allocate and load.
#pragma once

#include <functional>
#include <span>

#include "ccl/nccl/communicator.h"

namespace hetccl::ccl::nccl {

/// Runs every call that plans use, or messages only, in each size for which NCCL has another
/// algorithm.
class WarmUp {
 public:
  enum class Calls : uint8_t { All, Messages };
  WarmUp(Workspace& workspace, Calls calls) : workspace_(workspace), calls_(calls) {}
  ~WarmUp();
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  /// Allocates memory and a stream. Call before the communicator exists: allocating may wait for a
  /// device on which other ranks' calls wait for this one.
  Status reserve(int n_ranks);
  /// Collective. Calls `enqueued` when all calls are enqueued, then waits until they are done. If
  /// `give_up` returns true, or a call fails, it aborts the communicator and hands the memory over
  /// to it, because work that has not drained may still use it.
  Status run(NcclCommunicator& communicator, int n_ranks, const std::function<bool()>& give_up,
             const std::function<void()>& enqueued);

 private:
  [[nodiscard]] std::span<const size_t> sizes() const;  ///< ascending
  Status enqueue(NcclCommunicator& communicator, int n_ranks, const std::function<bool()>& give_up);
  Status enqueue_size(NcclCommunicator& communicator, int n_ranks, size_t count);
  Status enqueue_pairs(NcclCommunicator& communicator, int n_ranks, size_t count);

  Workspace& workspace_;
  const Calls calls_;
  void* stream_ = nullptr;
  std::byte* memory_ = nullptr;
  size_t half_ = 0;  // bytes of inputs; the same again for results
};

}  // namespace hetccl::ccl::nccl
