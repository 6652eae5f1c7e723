// The handles that programs hold: addresses within one range, so that two comparisons tell ours
// from a vendor's own. A handle that was destroyed is an error, not a crash.
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
  Vendor,     ///< the vendor's communicator
  Mixed,      ///< hetccl's
  Failed
};

/// What a call looks at. Lives as long as the process.
struct Handle {
  std::atomic<HandleState> state{HandleState::Free};
  std::atomic<ncclComm_t> vendor{nullptr};  ///< from when the vendor's library has published it
  std::atomic<hetcclComm_t> mixed{nullptr};
  std::shared_ptr<Communicator> communicator;  ///< guarded by the table's mutex
};

/// How many communicators a process may have at one time, and how many more it makes before the
/// handle of a destroyed one is used again.
inline constexpr size_t kMostHandles = size_t{1} << 18;

/// The first handle of kMostHandles that lie one after the other. Null where memory cannot be had.
extern Handle* const first_handle;

/// What `comm` stands for; null: not made here.
inline Handle* handle_of(ncclComm_t comm) {
  const auto offset = reinterpret_cast<uintptr_t>(comm) - reinterpret_cast<uintptr_t>(first_handle);
  return offset < kMostHandles * sizeof(Handle) && offset % sizeof(Handle) == 0
             ? first_handle + offset / sizeof(Handle)
             : nullptr;
}
inline ncclComm_t comm_of(Handle& handle) {
  return reinterpret_cast<ncclComm_t>(&handle);
}

/// A free handle, which becomes Beginning; null: all are in use. Thread-safe, as what follows.
Handle* take_handle(std::shared_ptr<Communicator> communicator);
/// Null once it is free.
std::shared_ptr<Communicator> communicator_of(Handle& handle);
/// Says which library serves it, unless it is no longer `communicator`'s.
void publish(Handle& handle, const Communicator* communicator, HandleState state, ncclComm_t vendor,
             hetcclComm_t mixed);
/// Frees it. Null where another thread has done so, or, if `owner` is given, it is another's.
std::shared_ptr<Communicator> release(Handle& handle, const Communicator* owner = nullptr);

}  // namespace hetccl::nccl
