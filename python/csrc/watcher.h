/// Threads that wait for work in order, on behalf of futures, the profiler, and operations whose
/// Work the user has dropped.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace hetccl::torch_backend {

/// One thread at a time waits. Before it completes a job, which runs the user's callbacks, it hands
/// the rest over to another thread: a callback may itself wait for later work, as PowerSGD's does.
///
/// Threads start on demand; at most one stays idle, for a second. Nobody joins them, so they may
/// outlive the Watcher: a job may need the interpreter's lock, which the destroying thread may
/// hold. In a forked child jobs are dropped.
class Watcher {
 public:
  struct Job {
    std::function<void()> wait;      ///< waits for one operation
    std::function<void()> complete;  ///< runs what depends on it
  };

  Watcher();
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// If no thread can be started, waits for the operation and completes the job itself: the
  /// operation has begun, so an exception would lose it.
  void add(Job job);
  /// Returns false if jobs remain after `timeout`.
  bool drain(std::chrono::milliseconds timeout);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);
  static bool wake(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace hetccl::torch_backend
