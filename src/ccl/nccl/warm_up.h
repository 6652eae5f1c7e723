// A communicator's first calls, which connect, allocate and load.
#pragma once

#include <functional>
#include <span>

#include "ccl/nccl/communicator.h"

namespace hetccl::ccl::nccl {

/// Runs every call that plans use, or messages alone, in the sizes for which NCCL has other
/// algorithms.
class WarmUp {
 public:
  enum class Calls : uint8_t { All, Messages };
  WarmUp(Workspace& workspace, Calls calls) : workspace_(workspace), calls_(calls) {}
  ~WarmUp();
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  /// Memory and a stream: before the communicator exists, since allocating may wait for a device
  /// where other ranks' calls wait for this one.
  Status reserve(int n_ranks);
  /// Collective; calls `enqueued` when all calls are, then waits until they are done. Once
  /// `give_up` says so, or a call has failed, it aborts the communicator, and leaves it the memory,
  /// which what has not drained may use.
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
  size_t half_ = 0;  // inputs, then as much for results
};

}  // namespace hetccl::ccl::nccl
