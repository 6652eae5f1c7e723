// Background work of a communicator whose user asked for non-blocking calls.
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

/// Runs chores one by one, in the order of `post`, on a thread that exists only while chores are
/// left. Thread-safe.
class Chores {
 public:
  /// If a chore throws, it ends and `on_exception` gets the error.
  explicit Chores(OnException on_exception) : on_exception_(std::move(on_exception)) {}
  /// Waits for all posted chores.
  ~Chores();
  Chores(const Chores&) = delete;
  Chores& operator=(const Chores&) = delete;

  /// Returns SystemError if no thread can be started; the chore is then not run.
  Status post(std::function<void()> chore);
  /// Waits until no chore is left. Must not be called from a chore.
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
