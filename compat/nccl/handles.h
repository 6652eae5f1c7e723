// The handles that programs hold: addresses within one range, so two comparisons tell hetccl's
// handles from a vendor's. Use of a destroyed handle is an error, not a crash.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hetccl/hetccl.h"
#include "nccl/abi.h"

namespace hetccl::nccl {

class Communicator;

enum class HandleState : uint32_t {
  Free,       ///< never used, or destroyed
  Beginning,  ///< in a group that has not ended, or being set up
  Vendor,     ///< served by the vendor's library
  Mixed,      ///< served by hetccl
  Failed
};

/// The state that each call reads. Lives as long as the process.
struct Handle {
  std::atomic<HandleState> state{HandleState::Free};
  std::atomic<ncclComm_t> vendor{nullptr};  ///< set once the vendor's communicator is published
  std::atomic<hetcclComm_t> mixed{nullptr};
  std::shared_ptr<Communicator> communicator;  ///< guarded by the table's mutex
};

/// Most communicators that exist at a time; also the number of new ones before the handle of a
/// destroyed one is used again.
inline constexpr size_t kMostHandles = size_t{1} << 18;

/// The first of kMostHandles consecutive handles. Null if address space cannot be reserved.
extern Handle* const first_handle;

/// Returns the handle for `comm`; null if it was not made here.
inline Handle* handle_of(ncclComm_t comm) {
  const auto offset = reinterpret_cast<uintptr_t>(comm) - reinterpret_cast<uintptr_t>(first_handle);
  return offset < kMostHandles * sizeof(Handle) && offset % sizeof(Handle) == 0
             ? first_handle + offset / sizeof(Handle)
             : nullptr;
}
inline ncclComm_t comm_of(Handle& handle) {
  return reinterpret_cast<ncclComm_t>(&handle);
}

/// Takes a free handle and sets it to Beginning; null if all are in use. Thread-safe, as are the
/// functions below.
Handle* take_handle(std::shared_ptr<Communicator> communicator);
/// Returns null once the handle is free.
std::shared_ptr<Communicator> communicator_of(Handle& handle);
/// Records which library serves the handle, unless it no longer belongs to `communicator`.
void publish(Handle& handle, const Communicator* communicator, HandleState state, ncclComm_t vendor,
             hetcclComm_t mixed);
/// Frees the handle. Returns null if another thread has done so, or if it does not belong to
/// `owner`.
std::shared_ptr<Communicator> release(Handle& handle, const Communicator* owner = nullptr);

}  // namespace hetccl::nccl
