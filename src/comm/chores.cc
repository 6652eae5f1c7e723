#include "comm/chores.h"

#include <utility>

#include "base/thread.h"

namespace hetccl::comm {

Chores::~Chores() {
  wait();
  if (thread_.joinable()) thread_.join();
}

Status Chores::post(std::function<void()> chore) {
  std::lock_guard lock(mutex_);
  chores_.push_back(std::move(chore));
  if (running_) return {};
  if (thread_.joinable()) thread_.join();  // it has released the mutex for good
  auto thread = start_thread("hetccl-chores", [this] { run(); });
  if (!thread.ok()) {
    chores_.pop_back();
    return thread.status();
  }
  thread_ = std::move(thread).value();
  running_ = true;
  return {};
}

void Chores::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return !running_; });
}

void Chores::run() {
  std::unique_lock lock(mutex_);
  while (!chores_.empty()) {
    std::function<void()> chore = std::move(chores_.front());
    chores_.pop_front();
    lock.unlock();
    try {
      chore();
    } catch (...) {
      report_exception(on_exception_);
    }
    chore = nullptr;  // release its captures before `wait` returns
    lock.lock();
  }
  running_ = false;
  done_.notify_all();
}

}  // namespace hetccl::comm
