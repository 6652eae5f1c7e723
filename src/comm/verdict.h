// Why a communicator has failed. Each rank reports what it sees to the coordinator, which picks the
// one cause that all ranks are told: the verdict.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "exec/fault.h"
#include "progress/engine.h"

namespace hetccl::comm {

/// Thread-safe, but for `join`: the control thread settles it, callers and the engine's driver
/// report and wait.
class Verdict {
 public:
  /// How long the verdict may take that explains what this rank sees of a failure.
  static constexpr std::chrono::milliseconds kNewsTime{250};
  /// How long a device has, after a failure, to end what it was given: no user's kernel, and no GPU
  /// that is lost, may hold up the process for ever.
  static constexpr std::chrono::seconds kLastWait{5};

  /// Both outlive it. A verdict arrives within `limit` of a report.
  Verdict(progress::Engine& engine, const Log& log, std::chrono::milliseconds limit)
      : engine_(engine), log_(log), limit_(limit) {}

  /// Reports go to the coordinator of `session`. By the thread that opens, before it opens more.
  void join(bootstrap::Session& session) { session_ = &session; }
  /// Tells the coordinator of a failure. Does not block.
  void report(ErrorCode code, int culprit, const std::string& reason);
  /// Reports what this rank has seen; the reason begins with its rank.
  void report_own(int culprit, const Status& seen) {
    report(seen.code(), culprit, format("rank %d: %s", log_.rank, seen.message().c_str()));
  }
  /// Has the coordinator ask all ranks why this one is stuck. Does not block.
  void ask_why(ErrorCode code, int culprit, const exec::Stall& stall);

  /// Fixes the cause and starts the last wait; false when there is a cause already.
  bool settle(Status cause);
  /// `settle` where an exception has left no memory for a cause: it is "out of memory".
  void settle_without_memory() noexcept;
  /// Fixes the cause, in place of another, where nothing is in flight.
  void replace(Status cause);

  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// The cause; ok while there is none.
  [[nodiscard]] Status cause() const;
  /// Waits for the cause, `limit` at most.
  void wait(std::chrono::milliseconds limit);
  /// The cause of a failure that was reported; waits for it, within the constructor's limit.
  [[nodiscard]] Status await();
  /// Drives the engine until `done()`, once there is a cause no longer than the last wait: whether
  /// it is done.
  template <typename Done>
  bool drive_until(Done done) {
    engine_.wait([&] { return done() || failed(); }, TimePoint::max());
    return done() || engine_.wait(done, last_wait_ends_);
  }

 private:
  bool settle_locked(Status cause);  // with mutex_ held

  progress::Engine& engine_;
  const Log& log_;
  const std::chrono::milliseconds limit_;
  bootstrap::Session* session_ = nullptr;

  mutable std::mutex mutex_;         // guards what follows
  std::condition_variable settled_;  // there is a cause
  Status cause_;
  Status out_of_memory_ = error(ErrorCode::SystemError, "out of memory");
  TimePoint last_wait_ends_{};  // not changed once `failed_`
  std::atomic<bool> failed_{false};
};

}  // namespace hetccl::comm
