// hetcclMemAlloc: memory of a GPU or of the host that the user asks for.
#pragma once

#include <list>
#include <map>
#include <mutex>

#include "base/status.h"
#include "comm/gpus.h"

namespace hetccl::comm {

/// Thread-safe. Memory that is not freed lives until the process ends.
class UserMemory {
 public:
  /// `gpus` must outlive it.
  explicit UserMemory(std::list<Gpus>& gpus) : gpus_(gpus) {}
  /// Allocates memory of the calling thread's current GPU by the GPU's own runtime, or whole pages
  /// of the host if the thread has no GPU. Returns SystemError if memory is short.
  Result<void*> allocate(size_t bytes);
  /// Waits for the work that uses it, as the GPU's runtime does. Returns InvalidArgument if
  /// `allocate` did not return `memory`.
  Status free(void* memory);

 private:
  struct Block {
    Gpus* gpus = nullptr;     // null: host memory
    void* context = nullptr;  // of the GPU
  };
  std::list<Gpus>& gpus_;
  std::mutex mutex_;
  std::map<void*, Block> blocks_;
};

}  // namespace hetccl::comm
