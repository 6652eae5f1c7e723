// The control thread: one epoll loop with timers. It owns everything that the coordinator and the
// sessions of a Service share with the network. Other threads post tasks to it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/exception.h"
#include "base/status.h"
#include "net/socket.h"

namespace hetccl::bootstrap {

/// Returns a wait in milliseconds, as given by a caller or a peer, clamped so that adding it to a
/// TimePoint cannot overflow.
inline std::chrono::milliseconds bounded_wait(int64_t wait_ms) {
  return std::chrono::milliseconds(std::clamp<int64_t>(wait_ms, 0, int64_t{1} << 40));
}

class Loop {
 public:
  using Task = std::function<void()>;
  using Ready = std::function<void(uint32_t events)>;
  using Timer = std::pair<TimePoint, uint64_t>;

  /// Starts the thread with all signals blocked, because they belong to the user's threads. Passes
  /// exceptions of callbacks to `on_exception`, on the thread, again and again until it returns.
  static Result<std::shared_ptr<Loop>> create(OnException on_exception,
                                              const Clock& clock = steady_clock());
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  /// `stop` must have been called.
  ~Loop() = default;

  // For any other thread.

  /// Runs `task` on the thread, in order. Returns false if the loop has stopped or belongs to the
  /// parent of this process.
  bool post(Task task);
  /// Posts `task` and waits until it has run. Rethrows its exception.
  bool run(Task task);
  /// Ends the thread once no descriptor is watched, or after `patience`. Tasks posted before still
  /// run.
  void stop(Duration patience);
  /// Returns false in a child made by fork: only the parent has the thread.
  [[nodiscard]] bool is_mine() const;

  // For the loop's thread only.

  [[nodiscard]] TimePoint now() const { return clock_.now(); }
  /// Calls `ready` whenever `fd` is ready for `events` (EPOLLIN, EPOLLOUT). Keeps `ready` until
  /// `unwatch`, even while it runs.
  Result<uint64_t> watch(int fd, uint32_t events, Ready ready);
  void change(uint64_t watch, int fd, uint32_t events);
  void unwatch(uint64_t watch, int fd);
  /// Runs `task` at `when`. Descriptors are served before timers, so a timer that checks for
  /// silence sees all data that has arrived.
  Timer at(TimePoint when, Task task);
  void cancel(const Timer& timer) { timers_.erase(timer); }

 private:
  Loop(Fd epoll, Fd wake, OnException on_exception, const Clock& clock);
  void main();
  void serve_once();
  template <typename Callback>
  void guard(const Callback& callback);
  bool serve_descriptors(int timeout_ms);
  void serve_timers();
  void serve_tasks();
  [[nodiscard]] int time_to_next_timer() const;
  [[nodiscard]] bool finished() const;

  Fd epoll_;
  Fd wake_;
  const int pid_;
  const OnException on_exception_;
  const Clock& clock_;
  bool untold_ = false;  // an exception that could not be reported for lack of memory
  std::unordered_map<uint64_t, std::shared_ptr<Ready>> watches_;
  std::map<Timer, Task> timers_;
  uint64_t next_ = 1;  // names of watches and timers; 0 is the wake descriptor
  bool stopping_ = false;
  TimePoint stop_deadline_;

  std::mutex mutex_;  // guards what follows
  std::vector<Task> tasks_;
  bool closed_ = false;

  std::thread thread_;
};

}  // namespace hetccl::bootstrap
