// The C API's state per process: one Runtime, made at the first call that needs it and never
// destroyed, so that an exit without destroy cannot hang; and the last error of each thread. After
// a second without use the Runtime rests: it gives up its threads and descriptors.
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

/// Returns the process's Runtime, and makes it if there is none. A failure is not final: the next
/// call tries again. InvalidUsage in a forked child of a process that has one, since its threads do
/// not exist there.
Result<Lease> runtime();
/// Creates a stream of the host device. While the stream exists, the Runtime stays awake.
Result<hetcclStream_t> create_host_stream();
Status destroy_host_stream(hetcclStream_t stream);
/// Returns the Runtime, awake, if `stream` is one of `create_host_stream`; else InvalidArgument.
Result<comm::Runtime*> runtime_of(hetcclStream_t stream);

/// A handle is a number, never a pointer, so use of a destroyed one is an error, not a crash.
/// `adopt` makes a handle whose communicator keeps `lease`. `find` and `release` return
/// InvalidArgument for an invalid handle; `release` makes a handle invalid.
hetcclComm_t adopt(std::shared_ptr<comm::Communicator> communicator, Lease lease);
Result<std::shared_ptr<comm::Communicator>> find(hetcclComm_t handle);
Result<std::shared_ptr<comm::Communicator>> release(hetcclComm_t handle);

/// InvalidUsage in a forked child of a process that has used hetccl.
Status check_fork();
/// All communicators that are not released. InvalidUsage in a forked child.
Result<std::vector<std::shared_ptr<comm::Communicator>>> all_communicators();

/// Implements hetcclShutdown. InvalidUsage, without effect, in a forked child.
Status shut_down(std::chrono::milliseconds grace);

/// Longer times would overflow a 64-bit count of nanoseconds.
inline constexpr int64_t kLongestTimeoutMs = 100'000'000'000;
/// The time at which a wait of at most `timeout_ms` ends; never if that is negative.
inline TimePoint deadline_of(const Clock& clock, int64_t timeout_ms) {
  if (timeout_ms < 0) return TimePoint::max();
  return clock.now() + std::chrono::milliseconds(std::min(timeout_ms, kLongestTimeoutMs));
}

/// Converts a caller's number to `Enum`. Numbers out of its range become a value that `is_valid`
/// refuses.
template <typename Enum>
Enum narrow(int value) {
  return static_cast<Enum>(value < 0 || value > UINT8_MAX ? UINT8_MAX : value);
}
/// "<argument> is null".
Status null(const char* argument);
/// Returns the return code of `status`, and makes its text this thread's last error.
hetcclResult_t finish(const Status& status);
/// The same for the current exception, which ends here. Only `finished` calls it.
hetcclResult_t finish_exception() noexcept;
/// Returns the return code for `body()`, a Status. Catches all exceptions.
template <typename Body>
hetcclResult_t finished(Body&& body) noexcept {
  try {
    return finish(body());
  } catch (...) {
    return finish_exception();
  }
}
/// Runs `body(communicator)` and keeps the communicator alive meanwhile, even if another thread
/// destroys or aborts `comm`.
template <typename Body>
hetcclResult_t with(hetcclComm_t comm, Body&& body) {
  return finished([&]() -> Status {
    HETCCL_ASSIGN(const auto found, find(comm));
    return body(*found);
  });
}
const std::string& last_error();
/// Returns the result of a call that made `comm`, or works on it, in the background:
/// hetcclInProgress instead of success if the communicator is not blocking.
hetcclResult_t in_progress_or(hetcclResult_t result, hetcclComm_t comm);

}  // namespace hetccl::capi
