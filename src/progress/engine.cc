#include "progress/engine.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "base/thread.h"

namespace hetccl::progress {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Spin this long before sleeping: about the cost of a futex or poll wake-up.
constexpr auto kSpin = microseconds(20);
// The same for a device that signals nothing: about the time of a small collective on it.
constexpr auto kSilentSpin = microseconds(100);
// Spin this long before yielding, because other threads may take milliseconds.
constexpr auto kEager = microseconds(2);
// The polling interval for devices that write flags silently (a GPU, the tests' fake).
constexpr auto kPollOnlySleep = microseconds(50);
// The longest sleep, so that deadlines are seen.
constexpr auto kLongestSleep = milliseconds(100);
// The longest wait of a caller that does not drive, before it looks again.
constexpr auto kHandoff = milliseconds(1);
// How long the engine's thread leaves new work to a caller that may come to wait for it.
constexpr auto kGrace = microseconds(100);
// How often a waiting caller calls the idle hook, which another library's messages may need.
constexpr auto kHookPeriod = microseconds(50);
// The polling interval for work that is not urgent.
constexpr auto kLeisure = milliseconds(1);

thread_local int wheels_held = 0;

}  // namespace

void Engine::Wheel::lock() {
  mutex_.lock();
  holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  ++wheels_held;
}

bool Engine::Wheel::try_lock() {
  const bool locked = mutex_.try_lock();
  if (locked) holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  wheels_held += locked ? 1 : 0;
  return locked;
}

void Engine::Wheel::unlock() {
  --wheels_held;
  holder_.store({}, std::memory_order_relaxed);
  mutex_.unlock();
}

bool Engine::Wheel::is_held() const {
  return holder_.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

bool Engine::drives() {
  return wheels_held > 0;
}

Result<std::unique_ptr<Engine>> Engine::create(const Clock& clock) {
  HETCCL_ASSIGN(auto waker, Waker::create());
  std::unique_ptr<Engine> engine(new Engine(clock, std::move(waker)));
  HETCCL_ASSIGN(engine->thread_,
                start_thread("hetccl-engine", [raw = engine.get()] { raw->run(); }));
  return engine;
}

Engine::Engine(const Clock& clock, std::unique_ptr<Waker> waker)
    : clock_(clock), waker_(std::move(waker)), sleeps_on_{{waker_->fd(), POLLIN, 0}} {}

Engine::~Engine() {
  stop_.store(true, std::memory_order_seq_cst);
  {
    std::lock_guard lock(mutex_);
  }
  idle_.notify_all();
  waker_->ring();
  if (thread_.joinable()) thread_.join();
}

void Engine::use(transport::Transport& transport) {
  transports_.push_back(&transport);
  if (transport.poll_fd() >= 0) sleeps_on_.push_back({transport.poll_fd(), POLLIN, 0});
}

void Engine::use(device::Device& device) {
  devices_.push_back(&device);
  if ((device.capabilities() & device::kCooperative) == 0) poll_only_ = true;
}

void Engine::add(Driven& driven, OnException on_exception) {
  exclusively([&] { driven_.push_back({&driven, std::move(on_exception)}); });
}

void Engine::remove(Driven& driven) {
  exclusively(
      [&] { std::erase_if(driven_, [&](const Entry& entry) { return entry.driven == &driven; }); });
}

void Engine::notify(bool at_once) {
  if (at_once) hurried_.store(true, std::memory_order_seq_cst);
  work_.fetch_add(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst)) waker_->ring();
  wake_thread();
  if (!at_once || !lingers_.load(std::memory_order_seq_cst)) return;
  {
    std::lock_guard lock(mutex_);
  }
  idle_.notify_one();
}

void Engine::notify_later() {
  not_urgent_.store(true, std::memory_order_seq_cst);
  if (rests_.load(std::memory_order_seq_cst)) wake_thread();
}

void Engine::exclusively(const std::function<void()>& change) {
  // A driver called this: the change is safe now, but elsewhere the caller might wait for itself.
  if (!require(!drive_mutex_.is_held(), "a driver asks for no turn of its own")) return change();
  // Unlock in a destructor: if `change` throws, drivers would otherwise stand aside for ever.
  struct Turn {
    explicit Turn(Engine& owner) : engine(owner) {
      engine.changers_.fetch_add(1, std::memory_order_seq_cst);
      if (engine.sleeping_.load(std::memory_order_seq_cst)) engine.waker_->ring();
      engine.drive_mutex_.lock();
    }
    ~Turn() {
      engine.changers_.fetch_sub(1, std::memory_order_seq_cst);
      engine.drive_mutex_.unlock();
      engine.released_.fetch_add(1, std::memory_order_seq_cst);
      engine.wake_queued();
      engine.wake_thread();
    }
    Engine& engine;
  };
  const Turn turn(*this);
  change();
}

void Engine::wake_thread() {
  if (callers_.load(std::memory_order_seq_cst) > 0) return;
  if (!waits_.load(std::memory_order_seq_cst) || !waits_.exchange(false)) return;
  {
    std::lock_guard lock(mutex_);
  }
  idle_.notify_one();
}

void Engine::wake_queued() {
  if (queued_.load(std::memory_order_seq_cst) == 0) return;
  {
    std::lock_guard lock(mutex_);
  }
  handoff_.notify_all();
}

bool Engine::active() {
  return std::any_of(driven_.begin(), driven_.end(),
                     [](const Entry& entry) { return entry.driven->active(); });
}

bool Engine::urgent() {
  return std::any_of(driven_.begin(), driven_.end(),
                     [](const Entry& entry) { return entry.driven->urgent(); });
}

bool Engine::drive_once() {
  bool moved = poll_sources();
  now_ = clock_.now();
  for (Entry& entry : driven_) {
    if (entry.driven->active()) moved |= poll(entry);
  }
  return moved;
}

// A source may serve any communicator, so all are told if it throws.
bool Engine::poll_sources() {
  bool moved = false;
  try {
    for (auto* transport : transports_) moved |= transport->progress();
    for (auto* device : devices_) moved |= device->progress();
  } catch (...) {
    for (Entry& entry : driven_) report_caught(entry);
  }
  return moved;
}

bool Engine::poll(Entry& entry) const {
  try {
    return entry.driven->poll(now_);
  } catch (...) {
    report_caught(entry);
    return false;
  }
}

// If `holds` is false, tells all driven objects that `invariant` is broken; this requires
// drive_mutex_.
bool Engine::require(bool holds, const char* invariant) {
  if (holds) [[likely]]
    return true;
  const Status why = error(ErrorCode::InternalError,
                           "hetccl's progress engine was misused (broken: %s). This is a defect of "
                           "hetccl: please report it",
                           invariant);
  for (Entry& entry : driven_) {
    if (!std::exchange(entry.told, true) && entry.on_exception) entry.on_exception(why);
  }
  return false;
}

// If memory is short, the next exception is reported instead.
void Engine::report_caught(Entry& entry) {
  if (!entry.told) entry.told = report_exception(entry.on_exception);
}

void Engine::arm(bool on) {
  const auto set = [on](ShmSource* source) {
    if (source != nullptr) on ? source->arm() : source->disarm();
  };
  for (auto* transport : transports_) {
    set(transport->shm_source());
    transport->arm(on);
  }
  for (const Entry& entry : driven_) set(entry.driven->shm_source());
}

bool Engine::silent() const {
  return poll_only_ || std::any_of(driven_.begin(), driven_.end(), [](const Entry& entry) {
           return entry.driven->active() && entry.driven->silent();
         });
}

void Engine::sleep(TimePoint deadline) {
  auto time = std::clamp<Duration>(deadline - clock_.now(), Duration(0), kLongestSleep);
  if (silent()) time = std::min<Duration>(time, kPollOnlySleep);
  const timespec timeout{0, static_cast<long>(time.count() % 1'000'000'000)};
  const int ready = ppoll(sleeps_on_.data(), sleeps_on_.size(), &timeout, nullptr);
  if (ready > 0 && (sleeps_on_.front().revents & POLLIN) != 0) waker_->drain();
}

void Engine::set_idle_hook(std::function<void()> hook) {
  std::lock_guard lock(hook_mutex_);
  const bool any = hook != nullptr;
  idle_hook_ = std::make_shared<const std::function<void()>>(std::move(hook));
  has_hook_.store(any, std::memory_order_release);
}

void Engine::call_idle_hook() {
  if (!has_hook_.load(std::memory_order_acquire)) return;
  const std::unique_lock lock(hook_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const auto hook = idle_hook_;  // the hook may set another one
  if (*hook) (*hook)();
}

void Engine::drive(Check done, void* context, TimePoint deadline, bool idles) {
  TimePoint idle_since = TimePoint::max();
  const bool returns = idles && has_hook_.load(std::memory_order_acquire);
  bool slept = false;
  while (!done(context)) {
    if (changers_.load(std::memory_order_seq_cst) > 0 || slept) return;
    if (drive_once()) {
      idle_since = TimePoint::max();
      wake_queued();
      if (now_ >= deadline) return;
      continue;
    }
    if (now_ >= deadline) return;
    idle_since = std::min(idle_since, now_);
    if (now_ - idle_since < (silent() ? kSilentSpin : kSpin)) {
      if (now_ - idle_since >= kEager) sched_yield();
      continue;
    }
    arm(true);
    const uint64_t work = work_.load(std::memory_order_seq_cst);
    sleeping_.store(true, std::memory_order_seq_cst);
    if (!drive_once() && !done(context) && work == work_.load(std::memory_order_seq_cst) &&
        changers_.load(std::memory_order_seq_cst) == 0) {
      slept = returns;
      sleep(returns ? std::min(deadline, clock_.now() + kHookPeriod) : deadline);
    }
    sleeping_.store(false, std::memory_order_seq_cst);
    arm(false);
    wake_queued();
  }
}

bool Engine::wait_until(Check done, void* context, TimePoint deadline) {
  if (done(context)) return true;
  if (!require(!drive_mutex_.is_held(), "a driver waits for no progress")) return false;
  callers_.fetch_add(1, std::memory_order_seq_cst);
  // The engine's thread may be driving, or asleep in it: wake it to hand over to a caller.
  if (sleeping_.load(std::memory_order_seq_cst)) waker_->ring();
  bool unfinished = true, left_some = true;
  uint64_t work = work_.load(std::memory_order_seq_cst);
  while (!done(context) && (deadline == TimePoint::max() || clock_.now() < deadline)) {
    const uint64_t released = released_.load(std::memory_order_seq_cst);
    if (changers_.load(std::memory_order_seq_cst) == 0 && drive_mutex_.try_lock()) {
      drive(done, context, deadline, true);
      work = work_.load(std::memory_order_seq_cst);
      unfinished = urgent();
      left_some = active();
      drive_mutex_.unlock();
      released_.fetch_add(1, std::memory_order_seq_cst);
      wake_queued();
      if (!done(context)) call_idle_hook();
      continue;
    }
    queued_.fetch_add(1, std::memory_order_seq_cst);
    {
      std::unique_lock lock(mutex_);
      handoff_.wait_for(lock, kHandoff, [&] {
        return done(context) || released != released_.load(std::memory_order_seq_cst);
      });
    }
    queued_.fetch_sub(1, std::memory_order_seq_cst);
    call_idle_hook();
  }
  const bool finished = done(context);
  callers_.fetch_sub(1, std::memory_order_seq_cst);
  wake_queued();
  // A `notify` that saw this caller left the thread asleep, and its work came after `work` was
  // read.
  const bool forgotten = rests_.load(std::memory_order_seq_cst) &&
                         (left_some || not_urgent_.load(std::memory_order_seq_cst));
  if (unfinished || forgotten || work != work_.load(std::memory_order_seq_cst)) wake_thread();
  return finished;
}

void Engine::run() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds: its sleeps are short
  while (!stop_.load(std::memory_order_seq_cst)) {
    const Pause pause = drive_thread();
    std::unique_lock lock(mutex_);
    if (!rest(lock, pause)) continue;
    lingers_.store(true, std::memory_order_seq_cst);
    idle_.wait_for(lock, kGrace,
                   [&] { return !wanted(pause) || stop_.load() || hurried_.exchange(false); });
    lingers_.store(false, std::memory_order_relaxed);
    rest(lock, pause);
  }
}

// Drives as long as there is urgent work and no caller takes over.
Engine::Pause Engine::drive_thread() {
  const auto leave = [](void* context) {
    auto* self = static_cast<Engine*>(context);
    return self->stop_.load(std::memory_order_seq_cst) ||
           self->callers_.load(std::memory_order_seq_cst) > 0 || !self->urgent();
  };
  Pause pause{work_.load(std::memory_order_seq_cst)};
  // Clear the notices before driving, which sees all earlier work.
  not_urgent_.exchange(false, std::memory_order_seq_cst);
  hurried_.exchange(false, std::memory_order_seq_cst);
  {
    const std::lock_guard drive_lock(drive_mutex_);
    drive(leave, this, TimePoint::max());
    if (active() && !urgent()) drive_once();
    pause.unfinished = urgent();
    pause.not_urgent = active() && !pause.unfinished;
  }
  released_.fetch_add(1, std::memory_order_seq_cst);
  wake_queued();
  return pause;
}

// Returns whether the thread must drive. It leaves work to a caller that waits, and so drives.
bool Engine::wanted(const Pause& pause) const {
  return stop_.load(std::memory_order_seq_cst) ||
         (callers_.load(std::memory_order_seq_cst) == 0 &&
          changers_.load(std::memory_order_seq_cst) == 0 &&
          (pause.unfinished || pause.work != work_.load(std::memory_order_seq_cst) ||
           (!pause.not_urgent && not_urgent_.load(std::memory_order_seq_cst))));
}

bool Engine::rest(std::unique_lock<std::mutex>& lock, const Pause& pause) {
  const auto called = [&] {
    // Store this first: later work will then notify.
    waits_.store(true, std::memory_order_seq_cst);
    rests_.store(!pause.not_urgent, std::memory_order_seq_cst);
    return wanted(pause);
  };
  bool was_called = true;
  if (pause.not_urgent) {
    was_called = idle_.wait_for(lock, kLeisure, called);
  } else {
    idle_.wait(lock, called);
  }
  waits_.store(false, std::memory_order_relaxed);
  rests_.store(false, std::memory_order_relaxed);
  return was_called;
}

}  // namespace hetccl::progress
