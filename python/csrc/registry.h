/// Makes the backends of process groups, and keeps track of the living ones.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend.h"

namespace hetccl::torch_backend {

/// Owned by torch_backend.py, which ends all backends before the interpreter ends. Thread-safe.
class Registry : public std::enable_shared_from_this<Registry> {
 public:
  using BackendPtr = c10::intrusive_ptr<HetcclBackend>;

  /// Joins a process group; blocks until all ranks have come. `preferred` is the device to use if
  /// nothing else decides. `world` is the default group's backend, if it is hetccl's.
  [[nodiscard]] BackendPtr create(const c10d::DistributedBackendOptions& options,
                                  std::optional<c10::Device> preferred, const BackendPtr& world,
                                  const Wire& wire);
  void add(const BackendPtr& backend);
  /// Ends every living backend within about `grace`.
  void close_all(std::chrono::milliseconds grace);

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<HetcclBackend>> backends_;
};

}  // namespace hetccl::torch_backend
