// What a communicator does in the background, when its user asked not to be blocked.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "base/exception.h"
#include "base/status.h"

namespace hetccl::comm {

/// Runs chores one by one, in the order of `post`, on a thread that exists only while there are
/// any. Thread-safe.
class Chores {
 public:
  /// A chore that throws ends, and `on_exception` takes what it threw.
  explicit Chores(OnException on_exception) : on_exception_(std::move(on_exception)) {}
  /// Waits for what was posted.
  ~Chores();
  Chores(const Chores&) = delete;
  Chores& operator=(const Chores&) = delete;

  /// SystemError where there is no thread for it: then it is not run.
  Status post(std::function<void()> chore);
  /// Returns once nothing is left. Not from within a chore.
  void wait();

 private:
  void run();

  const OnException on_exception_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable done_;
  std::deque<std::function<void()>> chores_;
  bool running_ = false;
  std::thread thread_;
};

}  // namespace hetccl::comm
