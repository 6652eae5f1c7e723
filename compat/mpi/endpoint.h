// A communicator of hetccl over the ranks of an MPI communicator. This rank takes part with host
// memory or with the memory of one GPU.
#pragma once

#include <memory>

#include "base/status.h"
#include "hetccl/hetccl.h"
#include "mpi/exchange.h"
#include "mpi/gpu.h"
#include "mpi/library.h"
#include "mpi/memory.h"

namespace hetccl::mpi {

/// Used by one thread at a time; all ranks make their calls in the same order.
class Endpoint {
 public:
  /// Collective over `comm`: waits for all its ranks. Either all ranks get an endpoint, or all get
  /// an error.
  static Result<std::unique_ptr<Endpoint>> create(Word comm, MemorySpace place,
                                                  const Library& library);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// The memory space that this rank's buffers must be usable in.
  [[nodiscard]] MemorySpace place() const { return place_; }
  /// Whether two ranks share a GPU: the same answer on all ranks.
  [[nodiscard]] bool shares_gpus() const { return shares_gpus_; }
  /// Makes a call with host memory and waits for it. Meanwhile the MPI goes on moving its own
  /// messages.
  Status run(const Exchange& exchange);

  /// Starts a call, or part `part` of `parts`, and returns a mark for `is_done`. Marks grow.
  Result<uint64_t> start(const Exchange& exchange, size_t part = 0, size_t parts = 1);
  [[nodiscard]] bool is_done(uint64_t mark) const;
  /// Waits for `mark`.
  Status await(uint64_t mark);
  /// Waits at most about a millisecond, driving the work meanwhile.
  void wait_briefly(uint64_t mark);
  /// The communicator's first failure, if any.
  [[nodiscard]] Status failure() const;

 private:
  Endpoint(MemorySpace place, const Library& library) : place_(place), library_(library) {}
  // Opens the GPU and writes its PCI bus id.
  Status open_gpu(char* bus_id, size_t bytes);
  Status join(const hetcclUniqueId& id, int size, int rank, int place_on_gpu);

  const MemorySpace place_;
  bool shares_gpus_ = false;
  const Library& library_;
  hetcclComm_t comm_ = nullptr;
  hetcclStream_t host_stream_ = nullptr;  // created by the first call that does not wait
  std::unique_ptr<GpuQueue> queue_;       // if place_ is on a GPU
};

}  // namespace hetccl::mpi
