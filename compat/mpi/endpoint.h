// A communicator of hetccl over the ranks of one of MPI's: this rank takes part with the host's
// memory or with one GPU's.
#pragma once

#include <memory>

#include "base/status.h"
#include "hetccl/hetccl.h"
#include "mpi/exchange.h"
#include "mpi/gpu.h"
#include "mpi/library.h"
#include "mpi/memory.h"

namespace hetccl::mpi {

/// Its calls are made in one order on all ranks, by one thread at a time.
class Endpoint {
 public:
  /// Collective over `comm`, and waits for all its ranks. All get one, or all an error.
  static Result<std::unique_ptr<Endpoint>> create(Word comm, MemorySpace place,
                                                  const Library& library);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Where this rank's memory must lie.
  [[nodiscard]] MemorySpace place() const { return place_; }
  /// Whether ranks of it share a GPU: the same on all.
  [[nodiscard]] bool shares_gpus() const { return shares_gpus_; }
  /// Makes a call with host memory, and waits for it. The MPI goes on moving its own messages
  /// meanwhile.
  Status run(const Exchange& exchange);

  /// Makes a call, or part of one, whose end `is_done` tells. Marks grow.
  Result<uint64_t> start(const Exchange& exchange, size_t part = 0, size_t parts = 1);
  [[nodiscard]] bool is_done(uint64_t mark) const;
  /// Waits for it.
  Status await(uint64_t mark);
  /// Waits at most about a millisecond, and does what it can to bring it about.
  void wait_briefly(uint64_t mark);
  /// The communicator's first failure, if there was one.
  [[nodiscard]] Status failure() const;

 private:
  Endpoint(MemorySpace place, const Library& library) : place_(place), library_(library) {}
  // Writes where the GPU is plugged in.
  Status open_gpu(char* bus_id, size_t bytes);
  Status join(const hetcclUniqueId& id, int size, int rank, int place_on_gpu);

  const MemorySpace place_;
  bool shares_gpus_ = false;
  const Library& library_;
  hetcclComm_t comm_ = nullptr;
  hetcclStream_t host_stream_ = nullptr;  // made by the first call that does not wait
  std::unique_ptr<GpuQueue> queue_;       // of a GPU
};

}  // namespace hetccl::mpi
