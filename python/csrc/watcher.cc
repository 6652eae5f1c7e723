#include "watcher.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "process_end.h"

namespace hetccl::torch_backend {
namespace {

/// A thread without a job for this long ends: a process may have many groups, most of them idle.
constexpr std::chrono::seconds kIdle(1);

/// Blocks signals, which are for the user's threads; faults still arrive.
void leave_signals_to_others() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    sigdelset(&blocked, fault);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

}  // namespace

struct Watcher::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  bool waiting = false;  ///< a thread waits for a job, and looks after the others when that ends
  int idle = 0;
  int completing = 0;
  bool stopping = false;
  const pid_t owner = getpid();

  /// A forked child has no thread here, and may have inherited a locked mutex.
  [[nodiscard]] bool forked() const { return getpid() != owner; }
};

Watcher::Watcher() : state_(std::make_shared<State>()) {}

Watcher::~Watcher() {
  if (state_->forked()) return;
  const std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
}

void Watcher::add(Job job) {
  if (state_->forked()) return;
  std::unique_lock lock(state_->mutex);
  if (state_->waiting || wake(state_)) {
    state_->jobs.push_back(std::move(job));
    return;
  }
  lock.unlock();
  job.wait();
  const BeforeProcessEnd alive;
  job.complete();
}

bool Watcher::drain(std::chrono::milliseconds timeout) {
  if (state_->forked()) return true;
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, timeout, [this] {
    return state_->jobs.empty() && !state_->waiting && state_->completing == 0;
  });
}

/// Makes an idle thread, or a new one, take the next job. Returns false if no thread can be
/// started. Requires the mutex.
bool Watcher::wake(const std::shared_ptr<State>& state) {
  if (state->idle > 0) {
    state->changed.notify_all();
    return true;
  }
  try {
    std::thread([state] { run(state); }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void Watcher::run(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), "hetccl-watcher");
  leave_signals_to_others();
  std::unique_lock lock(state->mutex);
  while (state->idle == 0) {
    ++state->idle;
    state->changed.wait_for(
        lock, kIdle, [&] { return !state->waiting && (state->stopping || !state->jobs.empty()); });
    --state->idle;
    if (state->jobs.empty() || state->waiting) return;
    Job job = std::move(state->jobs.front());
    state->jobs.pop_front();
    state->waiting = true;
    lock.unlock();
    job.wait();
    lock.lock();
    state->waiting = false;
    ++state->completing;
    // If no further thread can be started, this one continues once it has completed its job.
    if (!state->jobs.empty()) static_cast<void>(wake(state));
    lock.unlock();
    {
      const BeforeProcessEnd alive;
      job.complete();
      job = {};  // freed outside the lock: a destructor may call add
    }
    lock.lock();
    --state->completing;
    state->changed.notify_all();
  }
}

}  // namespace hetccl::torch_backend
