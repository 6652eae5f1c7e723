// The cause of a communicator's failure. Each rank reports what it sees to the coordinator, which
// picks one cause and tells it to all ranks: the verdict.
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

/// Thread-safe, except `join`. The control thread settles the verdict; callers and the engine's
/// driver report and wait.
class Verdict {
 public:
  /// The longest wait for a verdict that may explain a failure seen locally.
  static constexpr std::chrono::milliseconds kNewsTime{250};
  /// The time that a device has, after a failure, to finish its work. A user's kernel or a lost GPU
  /// must not block the process for ever.
  static constexpr std::chrono::seconds kLastWait{5};

  /// Both must outlive it. A verdict arrives within `limit` of a report.
  Verdict(progress::Engine& engine, const Log& log, std::chrono::milliseconds limit)
      : engine_(engine), log_(log), limit_(limit) {}

  /// Sends reports to the coordinator of `session`. Called by the thread that opens the
  /// communicator, before it opens anything else.
  void join(bootstrap::Session& session) { session_ = &session; }
  /// Reports a failure to the coordinator. Does not block.
  void report(ErrorCode code, int culprit, const std::string& reason);
  /// Reports a failure that this rank has seen; the reason begins with its rank.
  void report_own(int culprit, const Status& seen) {
    report(seen.code(), culprit, format("rank %d: %s", log_.rank, seen.message().c_str()));
  }
  /// Makes the coordinator ask all ranks why this one is stuck. Does not block.
  void ask_why(ErrorCode code, int culprit, const exec::Stall& stall);

  /// Sets the cause and starts the last wait. Returns false if a cause is already set.
  bool settle(Status cause);
  /// Calls `settle` with "out of memory" if an exception has left no memory for a cause.
  void settle_without_memory() noexcept;
  /// Replaces the cause. Requires that nothing is in flight.
  void replace(Status cause);

  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Returns the cause; ok: none.
  [[nodiscard]] Status cause() const;
  /// Waits for the cause, at most `limit`.
  void wait(std::chrono::milliseconds limit);
  /// Returns the cause of a reported failure. Waits for it within the constructor's limit.
  [[nodiscard]] Status await();
  /// Drives the engine until `done()`; once a cause is set, at most for the last wait. Returns
  /// `done()`.
  template <typename Done>
  bool drive_until(Done done) {
    engine_.wait([&] { return done() || failed(); }, TimePoint::max());
    return done() || engine_.wait(done, last_wait_ends_);
  }

 private:
  bool settle_locked(Status cause);  // requires mutex_

  progress::Engine& engine_;
  const Log& log_;
  const std::chrono::milliseconds limit_;
  bootstrap::Session* session_ = nullptr;

  mutable std::mutex mutex_;         // guards what follows
  std::condition_variable settled_;  // a cause is set
  Status cause_;
  Status out_of_memory_ = error(ErrorCode::SystemError, "out of memory");
  TimePoint last_wait_ends_{};  // fixed once `failed_`
  std::atomic<bool> failed_{false};
};

}  // namespace hetccl::comm
