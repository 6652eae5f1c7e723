/// One hetccl communicator and its host stream, over the C API alone: knows nothing of torch.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "hetccl/hetccl.h"

namespace hetccl::torch_backend {

/// What a call of the C API returned, with its text.
struct Failure {
  hetcclResult_t result;
  std::string text;
};

/// The text of this thread's last failed call.
[[nodiscard]] Failure last_failure(hetcclResult_t result);

/// Enqueues one collective on the stream that it is given.
using Launch = std::function<hetcclResult_t(hetcclComm_t, hetcclStream_t)>;

/// Thread-safe. Collectives are launched in the order of the calls; a closed communicator answers
/// with the failure that closed it.
class Communicator {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Blocks until all ranks have come. On failure returns nullptr and fills `failure`.
  [[nodiscard]] static std::shared_ptr<Communicator> join(const hetcclUniqueId& id, int rank,
                                                          int size, Milliseconds timeout,
                                                          Failure& failure);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Enqueues with a deadline of `timeout`; `ticket` is reached when the collective is complete. A
  /// `blocking` one returns complete, driven by this thread, where nothing else is in flight: it
  /// wakes no other thread.
  [[nodiscard]] std::optional<Failure> launch(const Launch& call, Milliseconds timeout,
                                              bool blocking, uint64_t& ticket);
  [[nodiscard]] bool reached(uint64_t ticket) const;
  /// Drives progress. False when `timeout` has passed first; no limit when it is negative.
  [[nodiscard]] bool wait(uint64_t ticket, Milliseconds timeout) const;
  /// The first failure of asynchronous work, or of the communicator as a whole.
  [[nodiscard]] std::optional<Failure> failure();

  /// Waits for enqueued work within its deadlines, or aborts at once where work has failed.
  void close();
  /// Ends enqueued work on every rank. `reason` is what later calls report.
  void abort(const std::string& reason);
  /// Waits for enqueued work at most `grace`, then aborts: for the end of the process.
  void close_within(Milliseconds grace);

  [[nodiscard]] std::optional<Failure> stats(hetcclCommStats_t& out);
  /// JSON.
  [[nodiscard]] std::optional<Failure> topology(std::string& out);

 private:
  /// Under the C API's bound of 1,024, so that an enqueue never blocks while `mutex_` is held.
  static constexpr size_t kInFlight = 512;

  Communicator(hetcclComm_t comm, hetcclStream_t stream, Milliseconds timeout);
  [[nodiscard]] bool forked() const;
  [[nodiscard]] std::optional<Failure> failure_locked();
  [[nodiscard]] std::optional<Failure> apply_timeout_locked(Milliseconds timeout);
  /// Why no further call is possible.
  [[nodiscard]] std::optional<Failure> refusal_locked() const;

  std::mutex mutex_;  ///< guards every use of `comm_`, which close and abort free
  hetcclComm_t comm_;
  const hetcclStream_t stream_;
  const pid_t owner_;  ///< a forked child may not touch the engine
  Milliseconds timeout_;
  std::optional<Failure> failed_;
  uint64_t launched_ = 0;
  std::array<uint64_t, kInFlight> tickets_{};  ///< of the last launches, by launched_ % kInFlight
};

}  // namespace hetccl::torch_backend
