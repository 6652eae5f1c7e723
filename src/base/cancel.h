// Ends blocking calls early: whoever waits looks at a Cancel beside its deadline.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"

namespace hetccl {

/// A latch with a reason, set once. Thread-safe.
class Cancel {
 public:
  static Result<std::unique_ptr<Cancel>> create();
  ~Cancel();
  Cancel(const Cancel&) = delete;
  Cancel& operator=(const Cancel&) = delete;

  /// Calls that wait end with `reason`, an error. The first reason stays.
  void set(const Status& reason);
  [[nodiscard]] bool is_set() const { return set_.load(std::memory_order_acquire); }
  /// The reason; ok while it is not set.
  [[nodiscard]] Status reason() const;
  /// Readable from `set` on: for poll(2), beside what a call waits for.
  [[nodiscard]] int fd() const { return fd_; }

 private:
  explicit Cancel(int fd) : fd_(fd) {}
  const int fd_;
  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;  // guards what follows
  Status reason_;
};

/// How long a blocking call may take, and what may end it before.
struct WaitLimit {
  // A number alone is the usual case.
  WaitLimit(int64_t milliseconds, const Cancel* ends = nullptr)  // NOLINT(*-explicit-*)
      : timeout_ms(milliseconds), cancel(ends) {}
  int64_t timeout_ms;
  const Cancel* cancel;                  ///< may be null; outlives the call
  const Clock* clock = &steady_clock();  ///< by which it is measured; outlives the call
  bool patient = false;  ///< the other end may be long in coming: that it waits is no news

  [[nodiscard]] TimePoint now() const { return clock->now(); }
  /// The deadline of a call that begins now.
  [[nodiscard]] TimePoint deadline() const { return now() + std::chrono::milliseconds(timeout_ms); }
  /// Why the call has to end now, its deadline apart; ok while it may go on.
  [[nodiscard]] Status cancelled() const {
    return cancel != nullptr && cancel->is_set() ? cancel->reason() : Status();
  }
};

}  // namespace hetccl
