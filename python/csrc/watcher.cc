#include "watcher.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace hetccl::torch_backend {

struct Watcher::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  bool started = false;
  bool busy = false;
  bool stopping = false;
};

Watcher::Watcher() : state_(std::make_shared<State>()) {}

Watcher::~Watcher() {
  const std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
}

void Watcher::add(Job job) {
  const std::lock_guard lock(state_->mutex);
  state_->jobs.push_back(std::move(job));
  if (!state_->started) {
    std::thread([state = state_] { run(state); }).detach();
    state_->started = true;
  }
  state_->changed.notify_all();
}

bool Watcher::drain(std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, timeout,
                                  [this] { return state_->jobs.empty() && !state_->busy; });
}

void Watcher::run(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), "hetccl-watcher");
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->stopping || !state->jobs.empty(); });
    if (state->jobs.empty()) return;
    Job job = std::move(state->jobs.front());
    state->jobs.pop_front();
    state->busy = true;
    lock.unlock();
    job();
    job = nullptr;  // frees what it holds outside the lock: a destructor may call add
    lock.lock();
    state->busy = false;
    state->changed.notify_all();
  }
}

}  // namespace hetccl::torch_backend
