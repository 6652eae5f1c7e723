// The control thread: one epoll loop with timers, which owns everything that the coordinator and
// the sessions of a Service share with the network. Other threads hand it tasks.
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

/// A wait given in milliseconds, by a caller or a peer: clamped so that it can be added to a
/// TimePoint.
inline std::chrono::milliseconds bounded_wait(int64_t wait_ms) {
  return std::chrono::milliseconds(std::clamp<int64_t>(wait_ms, 0, int64_t{1} << 40));
}

class Loop {
 public:
  using Task = std::function<void()>;
  using Ready = std::function<void(uint32_t events)>;
  using Timer = std::pair<TimePoint, uint64_t>;

  /// Starts the thread, with all signals blocked: they belong to the user's threads. What a
  /// callback throws goes to `on_exception`, on the thread, again and again until that returns.
  static Result<std::shared_ptr<Loop>> create(OnException on_exception,
                                              const Clock& clock = steady_clock());
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  /// `stop` must have been called.
  ~Loop() = default;

  // From any other thread.

  /// Runs `task` on the thread, in order; false when the loop has stopped or belongs to the parent
  /// of this process.
  bool post(Task task);
  /// `post`, and waits until it has run; throws what it throws.
  bool run(Task task);
  /// Ends the thread once no descriptor is watched, or after `patience`. Tasks posted before still
  /// run.
  void stop(Duration patience);
  /// False in a child made by fork: the thread exists in the parent only.
  [[nodiscard]] bool is_mine() const;

  // On the thread only.

  [[nodiscard]] TimePoint now() const { return clock_.now(); }
  /// Calls `ready` whenever `fd` is ready for `events` (EPOLLIN, EPOLLOUT). `ready` is kept until
  /// `unwatch`, also while it runs.
  Result<uint64_t> watch(int fd, uint32_t events, Ready ready);
  void change(uint64_t watch, int fd, uint32_t events);
  void unwatch(uint64_t watch, int fd);
  /// Descriptors are served before timers, so a timer that finds silence finds it on a loop that
  /// has read what had come.
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
  bool untold_ = false;  // of an exception: there was no memory for that
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
