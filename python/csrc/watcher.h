/// Threads that wait for work in order, for those who cannot: futures, the profiler, and operations
/// whose Work the user dropped.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace hetccl::torch_backend {

/// One thread at a time waits. Before it completes a job, which runs the user's callbacks, it hands
/// the rest over to another: a callback may itself wait for later work, as PowerSGD's does.
///
/// Threads start when they are needed; at most one stays idle, for a second. They outlive the
/// Watcher until its jobs are done: a job may need the interpreter's lock, which whoever destroys a
/// Watcher may hold, so nobody joins them. A forked child's jobs are dropped.
class Watcher {
 public:
  struct Job {
    std::function<void()> wait;      ///< for one operation
    std::function<void()> complete;  ///< what depends on it
  };

  Watcher();
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Where the process may have no more threads, it waits for the operation and completes the job
  /// itself: the operation has begun, so an exception would lose it.
  void add(Job job);
  /// False when jobs remain after `timeout`.
  bool drain(std::chrono::milliseconds timeout);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);
  static bool wake(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace hetccl::torch_backend
