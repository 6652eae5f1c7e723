// Ends blocking calls early: a waiting thread checks a Cancel besides its deadline.
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

  /// Makes waiting calls return `reason`, an error. Only the first reason counts.
  void set(const Status& reason);
  [[nodiscard]] bool is_set() const { return set_.load(std::memory_order_acquire); }
  /// Returns the reason; ok while it is not set.
  [[nodiscard]] Status reason() const;
  /// Polls readable once set, so that a blocking call can poll it beside its own descriptors.
  [[nodiscard]] int fd() const { return fd_; }

 private:
  explicit Cancel(int fd) : fd_(fd) {}
  const int fd_;
  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;  // guards the members below
  Status reason_;
};

/// The time limit of a blocking call, and what may end it earlier.
struct WaitLimit {
  // Converts implicitly from a number, the usual case.
  WaitLimit(int64_t milliseconds, const Cancel* ends = nullptr)  // NOLINT(*-explicit-*)
      : timeout_ms(milliseconds), cancel(ends) {}
  int64_t timeout_ms;
  const Cancel* cancel;                  ///< may be null; must outlive the call
  const Clock* clock = &steady_clock();  ///< measures it; must outlive the call
  bool patient = false;  ///< the peer may come much later, so waiting for it is not logged

  [[nodiscard]] TimePoint now() const { return clock->now(); }
  /// Returns the deadline of a call that begins now.
  [[nodiscard]] TimePoint deadline() const { return now() + std::chrono::milliseconds(timeout_ms); }
  /// Returns why the call must end now, the deadline aside; ok while it may continue.
  [[nodiscard]] Status cancelled() const {
    return cancel != nullptr && cancel->is_set() ? cancel->reason() : Status();
  }
};

}  // namespace hetccl
