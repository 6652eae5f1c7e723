// Calls adaptors, which may throw, return bad error texts, or take too long.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "adaptor/adaptor.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/exception.h"
#include "base/thread.h"

namespace hetccl::adaptor {

/// Makes the error of a failed call to the adaptor `name`. `text` explains it, or is null.
Status failed(const std::string& name, const char* what, const char* text);
/// Makes the error of a call that has thrown.
Status threw(const std::string& name, const char* what);

/// Returns the result of `call` as a Status: SystemError with the part's own text if it fails, also
/// if it throws.
template <typename Calls>
Status ask(const Part<Calls>& part, const char* what, const std::function<int()>& call) {
  try {
    const int code = call();
    return code == 0 ? Status() : failed(part.name, what, part.calls.error_text(code));
  } catch (...) {
    return threw(part.name, what);
  }
}

/// Makes the error of a call that took too long.
Status not_in_time(const char* what, const WaitLimit& limit);

/// Runs a call that may wait for other ranks, within `limit`, and calls `meanwhile` now and then. A
/// call that takes longer continues on its own thread; its result is destroyed.
template <typename T>
Result<T> run_within(
    const WaitLimit& limit, const char* what, std::function<Result<T>()> call,
    const std::function<void()>& meanwhile = [] {}) {
  constexpr std::chrono::milliseconds kGlance{5};
  struct Attempt {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Result<T>> result;
  };
  auto attempt = std::make_shared<Attempt>();
  auto thread = start_thread("hetccl-adaptor", [attempt, call = std::move(call)] {
    const auto finish = [&](Result<T> result) {
      const std::lock_guard lock(attempt->mutex);
      attempt->result = std::move(result);
      attempt->done.notify_one();
    };
    try {
      finish(call());
    } catch (...) {
      report_exception([&](const Status& why) { finish(why); });
    }
  });
  if (!thread.ok()) return thread.status().with(what);
  thread->detach();
  const TimePoint deadline = limit.deadline();
  std::unique_lock lock(attempt->mutex);
  while (!attempt->result) {
    HETCCL_TRY(limit.cancelled());
    if (limit.now() >= deadline) return not_in_time(what, limit);
    attempt->done.wait_for(lock, kGlance);
    meanwhile();
  }
  return std::move(*attempt->result);
}

}  // namespace hetccl::adaptor
