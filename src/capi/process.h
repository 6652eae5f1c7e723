// What the C API keeps per process: one Runtime, made at the first call that needs it and never
// destroyed, so that exiting without destroy cannot hang; and the calling thread's last error.
// The Runtime rests, without threads and descriptors, once nobody has used it for a second.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/runtime.h"
#include "hetccl/hetccl.h"

namespace hetccl::capi {

/// Keeps the process's Runtime awake.
class Lease {
 public:
  Lease(const Lease& other);
  Lease(Lease&& other) noexcept : runtime_(std::exchange(other.runtime_, nullptr)) {}
  Lease& operator=(Lease other) noexcept;
  ~Lease();
  comm::Runtime* operator->() const { return runtime_; }
  comm::Runtime& operator*() const { return *runtime_; }

 private:
  friend Result<Lease> runtime();
  explicit Lease(comm::Runtime& runtime);
  comm::Runtime* runtime_;
};

/// The process's Runtime. Errors repeat until one call succeeds. InvalidUsage in a forked child of
/// a process that has one: its threads do not exist there.
Result<Lease> runtime();
/// A stream of the host device: while it exists it keeps the Runtime awake.
Result<hetcclStream_t> create_host_stream();
Status destroy_host_stream(hetcclStream_t stream);
/// The Runtime, awake if `stream` is one of `create_host_stream`. InvalidArgument else.
Result<comm::Runtime*> runtime_of(hetcclStream_t stream);

/// A handle is a number, never a pointer: one that was destroyed is an error, not a crash. `adopt`
/// makes one, whose communicator keeps `lease`; `find` and `release` are InvalidArgument for a
/// handle that is none, `release` makes it so.
hetcclComm_t adopt(std::shared_ptr<comm::Communicator> communicator, Lease lease);
Result<std::shared_ptr<comm::Communicator>> find(hetcclComm_t handle);
Result<std::shared_ptr<comm::Communicator>> release(hetcclComm_t handle);

/// InvalidUsage in a forked child of a process that has used hetccl.
Status check_fork();
/// Those that are not released. InvalidUsage in a forked child.
Result<std::vector<std::shared_ptr<comm::Communicator>>> all_communicators();

/// What hetcclShutdown does. InvalidUsage in a forked child, where nothing is done.
Status shut_down(std::chrono::milliseconds grace);

/// Larger times would overflow a 64-bit count of nanoseconds.
inline constexpr int64_t kLongestTimeoutMs = 100'000'000'000;
/// When a wait ends that takes `timeout_ms` at most; never where that is negative.
inline TimePoint deadline_of(const Clock& clock, int64_t timeout_ms) {
  if (timeout_ms < 0) return TimePoint::max();
  return clock.now() + std::chrono::milliseconds(std::min(timeout_ms, kLongestTimeoutMs));
}

/// A caller's number, which may be any, as one that `Enum` has or that `is_valid` refuses.
template <typename Enum>
Enum narrow(int value) {
  return static_cast<Enum>(value < 0 || value > UINT8_MAX ? UINT8_MAX : value);
}
/// "<argument> is null".
Status null(const char* argument);
/// The return code of `status`; its text becomes this thread's last error.
hetcclResult_t finish(const Status& status);
/// The same for the exception in flight, which ends here. For `finished` alone.
hetcclResult_t finish_exception() noexcept;
/// The return code of `body()`, a Status. No exception leaves the C API.
template <typename Body>
hetcclResult_t finished(Body&& body) noexcept {
  try {
    return finish(body());
  } catch (...) {
    return finish_exception();
  }
}
/// Runs `body(communicator)`, which stays alive meanwhile, whoever destroys or aborts `comm`.
template <typename Body>
hetcclResult_t with(hetcclComm_t comm, Body&& body) {
  return finished([&]() -> Status {
    HETCCL_ASSIGN(const auto found, find(comm));
    return body(*found);
  });
}
const std::string& last_error();
/// What a call answers that made `comm`, or works on it, in the background: hetcclInProgress in
/// place of success where the communicator is not blocking.
hetcclResult_t in_progress_or(hetcclResult_t result, hetcclComm_t comm);

}  // namespace hetccl::capi
