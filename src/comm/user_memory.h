// Memory that the user asks for, of a GPU or of the host: hetcclMemAlloc.
#pragma once

#include <list>
#include <map>
#include <mutex>

#include "base/status.h"
#include "comm/gpus.h"

namespace hetccl::comm {

/// Thread-safe. What is left is the process's until it ends.
class UserMemory {
 public:
  /// `gpus` outlive it.
  explicit UserMemory(std::list<Gpus>& gpus) : gpus_(gpus) {}
  /// Memory of the calling thread's current GPU, by its own runtime; of the host, in whole pages,
  /// where the thread has none. SystemError where there is not so much.
  Result<void*> allocate(size_t bytes);
  /// Waits, as the GPU's runtime does, for the work that uses it. InvalidArgument where it is none
  /// of `allocate`'s.
  Status free(void* memory);

 private:
  struct Block {
    Gpus* gpus = nullptr;     // null: the host's
    void* context = nullptr;  // of the GPU
  };
  std::list<Gpus>& gpus_;
  std::mutex mutex_;
  std::map<void*, Block> blocks_;
};

}  // namespace hetccl::comm
