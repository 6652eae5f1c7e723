#include "comm/user_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace hetccl::comm {
namespace {

Result<void*> allocate_on_host(size_t bytes) {
  void* memory = nullptr;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (posix_memalign(&memory, page, bytes) == 0) return memory;
  return error(ErrorCode::SystemError, "the host has no %zu bytes of memory left", bytes);
}

}  // namespace

Result<void*> UserMemory::allocate(size_t bytes) {
  const auto used = std::find_if(gpus_.begin(), gpus_.end(),
                                 [](const Gpus& one) { return one.current_device() >= 0; });
  Block block;
  void* memory = nullptr;
  if (used == gpus_.end()) {
    HETCCL_ASSIGN(memory, allocate_on_host(bytes));
  } else {
    block.gpus = &*used;
    HETCCL_ASSIGN(memory, used->allocate(bytes, block.context));
  }
  const std::lock_guard lock(mutex_);
  blocks_[memory] = block;
  return memory;
}

Status UserMemory::free(void* memory) {
  std::unique_lock lock(mutex_);
  const auto found = blocks_.extract(memory);
  lock.unlock();
  if (found.empty()) {
    return error(ErrorCode::InvalidArgument,
                 "ptr is none of hetcclMemAlloc's, or was freed: free memory with what allocated "
                 "it");
  }
  const Block& block = found.mapped();
  if (block.gpus != nullptr) return block.gpus->free(memory, block.context);
  std::free(memory);
  return {};
}

}  // namespace hetccl::comm
