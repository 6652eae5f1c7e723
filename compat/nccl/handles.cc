#include "nccl/handles.h"

#include <sys/mman.h>

#include <mutex>
#include <utility>

namespace hetccl::nccl {
namespace {

// Reserves address space: untouched pages take no memory, and a page of zeros is a valid Handle.
Handle* reserve() {
  void* const memory = ::mmap(nullptr, kMostHandles * sizeof(Handle), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Handle*>(memory);
}

std::mutex& mutex() {
  static auto* const made = new std::mutex;  // leaked: a call may be running at exit
  return *made;
}

size_t next = 0;  // guarded by the mutex

}  // namespace

Handle* const first_handle = reserve();

Handle* take_handle(std::shared_ptr<Communicator> communicator) {
  const std::lock_guard lock(mutex());
  for (size_t i = 0; first_handle != nullptr && i < kMostHandles; ++i) {
    Handle& handle = first_handle[next];
    next = (next + 1) % kMostHandles;
    if (handle.state.load() != HandleState::Free) continue;
    handle.communicator = std::move(communicator);
    handle.vendor.store(nullptr);
    handle.mixed.store(nullptr);
    handle.state.store(HandleState::Beginning);
    return &handle;
  }
  return nullptr;
}

std::shared_ptr<Communicator> communicator_of(Handle& handle) {
  const std::lock_guard lock(mutex());
  return handle.communicator;
}

void publish(Handle& handle, const Communicator* communicator, HandleState state, ncclComm_t vendor,
             hetcclComm_t mixed) {
  const std::lock_guard lock(mutex());
  if (handle.communicator.get() != communicator) return;
  handle.vendor.store(vendor);
  handle.mixed.store(mixed);
  handle.state.store(state);
}

std::shared_ptr<Communicator> release(Handle& handle, const Communicator* owner) {
  const std::lock_guard lock(mutex());
  if (handle.communicator == nullptr) return nullptr;
  if (owner != nullptr && handle.communicator.get() != owner) return nullptr;
  handle.state.store(HandleState::Free);
  return std::exchange(handle.communicator, nullptr);
}

}  // namespace hetccl::nccl
