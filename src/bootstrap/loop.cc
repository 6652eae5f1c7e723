#include "bootstrap/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "base/thread.h"

namespace hetccl::bootstrap {

namespace {

constexpr uint64_t kWake = 0;
constexpr int kMaxSleepMs = 60'000;
constexpr int kUntoldSleepMs = 10;
constexpr size_t kEventsPerCall = 128;

}  // namespace

Loop::Loop(Fd epoll, Fd wake, OnException on_exception, const Clock& clock)
    : epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      pid_(getpid()),
      on_exception_(std::move(on_exception)),
      clock_(clock) {}

Result<std::shared_ptr<Loop>> Loop::create(OnException on_exception, const Clock& clock) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return system_error("creating the control plane's epoll", errno);
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return system_error("creating the control plane's eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWake;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return system_error("watching the control plane's eventfd", errno);
  }
  std::shared_ptr<Loop> loop(
      new Loop(std::move(epoll), std::move(wake), std::move(on_exception), clock));
  HETCCL_ASSIGN(loop->thread_, start_thread("hetccl-control", [raw = loop.get()] { raw->main(); }));
  return loop;
}

bool Loop::is_mine() const {
  return getpid() == pid_;
}

bool Loop::post(Task task) {
  if (!is_mine()) return false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    tasks_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  return true;
}

bool Loop::run(Task task) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr thrown;
  // The loop's thread drops its reference to an exception before it wakes the waiter, which is then
  // the only owner.
  if (!post([&] {
        try {
          task();
        } catch (...) {
          thrown = std::current_exception();
        }
        std::lock_guard lock(mutex);
        done = true;
        changed.notify_one();
      })) {
    return false;
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
  return true;
}

void Loop::stop(Duration patience) {
  post([this, patience] {
    stopping_ = true;
    stop_deadline_ = now() + patience;
  });
  thread_.join();
  // Destroying these may call `unwatch` and `cancel`.
  const auto watches = std::exchange(watches_, {});
  const auto timers = std::exchange(timers_, {});
}

Result<uint64_t> Loop::watch(int fd, uint32_t events, Ready ready) {
  const uint64_t name = next_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = name;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return system_error("watching a connection", errno);
  }
  watches_.emplace(name, std::make_shared<Ready>(std::move(ready)));
  return name;
}

void Loop::change(uint64_t watch, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Loop::unwatch(uint64_t watch, int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watches_.erase(watch);
}

Loop::Timer Loop::at(TimePoint when, Task task) {
  const Timer timer(when, next_++);
  timers_.emplace(timer, std::move(task));
  return timer;
}

void Loop::main() {
  while (!finished()) guard([this] { serve_once(); });
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  serve_tasks();  // run them even so: a thread may wait in `run`
}

void Loop::serve_once() {
  // A thread that was stopped or starved wakes with timers due and data waiting. Serve data first.
  if (!serve_descriptors(time_to_next_timer())) serve_descriptors(0);
  serve_tasks();
  serve_timers();
  if (untold_) guard([] { throw std::bad_alloc(); });
}

// The callback's state may be half changed, so the loop's user must end it.
template <typename Callback>
void Loop::guard(const Callback& callback) {
  try {
    callback();
  } catch (...) {
    untold_ = !report_exception(on_exception_);
  }
}

bool Loop::finished() const {
  return stopping_ && (watches_.empty() || now() >= stop_deadline_);
}

int Loop::time_to_next_timer() const {
  if (untold_) return kUntoldSleepMs;
  TimePoint next = timers_.empty() ? TimePoint::max() : timers_.begin()->first.first;
  if (stopping_) next = std::min(next, stop_deadline_);
  const TimePoint time = now();
  if (next <= time) return 0;
  if (next - time > std::chrono::milliseconds(kMaxSleepMs)) return kMaxSleepMs;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next - time).count());
}

bool Loop::serve_descriptors(int timeout_ms) {
  std::array<epoll_event, kEventsPerCall> events;
  const int n =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.u64 == kWake) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &count, sizeof count);
      continue;
    }
    const auto found = watches_.find(event.data.u64);
    if (found == watches_.end()) continue;  // unwatched by an earlier event
    const std::shared_ptr<Ready> ready = found->second;
    guard([&] { (*ready)(event.events); });
  }
  return n > 0;
}

void Loop::serve_tasks() {
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) guard(task);
}

void Loop::serve_timers() {
  // Takes only timers due now; timers added for this moment wait for the next round.
  const TimePoint time = now();
  std::vector<Timer> due;
  for (const auto& [timer, task] : timers_) {
    if (timer.first > time) break;
    due.push_back(timer);
  }
  for (const Timer& timer : due) {
    const auto node = timers_.extract(timer);
    if (!node.empty()) guard(node.mapped());
  }
}

}  // namespace hetccl::bootstrap
