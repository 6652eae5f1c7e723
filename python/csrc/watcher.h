/// A thread that waits for work in order, for those who cannot: futures, the profiler, and
/// operations whose Work the user dropped.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace hetccl::torch_backend {

/// The thread starts with the first job and sleeps when there is none. It outlives the Watcher
/// until its jobs are done: a job may need the interpreter's lock, which whoever destroys a Watcher
/// may hold, so nobody joins it.
class Watcher {
 public:
  /// Waits for one operation, then completes what depends on it.
  using Job = std::function<void()>;

  Watcher();
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  void add(Job job);
  /// False when jobs remain after `timeout`.
  bool drain(std::chrono::milliseconds timeout);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace hetccl::torch_backend
