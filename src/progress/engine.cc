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

// How long to look again before sleeping: about what a futex or poll wake-up costs.
constexpr auto kSpin = microseconds(20);
// The same of a device that announces nothing: about what a small collective takes there.
constexpr auto kSilentSpin = microseconds(100);
// Before that, how long to look without letting others run, which may take them milliseconds.
constexpr auto kEager = microseconds(2);
// A device that writes flags silently (a GPU, the tests' fake) is looked at this often.
constexpr auto kPollOnlySleep = microseconds(50);
// Upper bound of one sleep, so that deadlines are seen.
constexpr auto kLongestSleep = milliseconds(100);
// A caller that does not drive looks again after this long at the latest.
constexpr auto kHandoff = milliseconds(1);
// The engine's thread leaves new work this long to a caller that comes to wait for it.
constexpr auto kGrace = microseconds(100);
// A waiting caller calls the idle hook this often: another library's messages wait for it.
constexpr auto kHookPeriod = microseconds(50);
// What is not urgent is looked at this often.
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
      [&] { std::erase_if(driven_, [&](const Seat& seat) { return seat.driven == &driven; }); });
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

void Engine::notify_at_leisure() {
  leisurely_.store(true, std::memory_order_seq_cst);
  if (rests_.load(std::memory_order_seq_cst)) wake_thread();
}

void Engine::exclusively(const std::function<void()>& change) {
  // Nobody else drives: the change is safe, but whoever makes it might wait for itself elsewhere.
  if (!require(!drive_mutex_.is_held(), "a driver asks for no turn of its own")) return change();
  // In a destructor, since `change` may throw: drivers would stand aside for ever.
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
                     [](const Seat& seat) { return seat.driven->active(); });
}

bool Engine::urgent() {
  return std::any_of(driven_.begin(), driven_.end(),
                     [](const Seat& seat) { return seat.driven->urgent(); });
}

bool Engine::drive_once() {
  bool moved = poll_sources();
  now_ = clock_.now();
  for (Seat& seat : driven_) {
    if (seat.driven->active()) moved |= poll(seat);
  }
  return moved;
}

// What moves through a source that throws may be any communicator's.
bool Engine::poll_sources() {
  bool moved = false;
  try {
    for (auto* transport : transports_) moved |= transport->progress();
    for (auto* device : devices_) moved |= device->progress();
  } catch (...) {
    for (Seat& seat : driven_) tell(seat);
  }
  return moved;
}

bool Engine::poll(Seat& seat) const {
  try {
    return seat.driven->poll(now_);
  } catch (...) {
    tell(seat);
    return false;
  }
}

// `holds`; where it does not, all that are driven learn that `invariant` is broken. With
// drive_mutex_ held in that case.
bool Engine::require(bool holds, const char* invariant) {
  if (holds) [[likely]]
    return true;
  const Status why = error(ErrorCode::InternalError,
                           "hetccl's progress engine was misused (broken: %s). This is a defect of "
                           "hetccl: please report it",
                           invariant);
  for (Seat& seat : driven_) {
    if (!std::exchange(seat.told, true) && seat.on_exception) seat.on_exception(why);
  }
  return false;
}

// Without memory for that, the next exception is told.
void Engine::tell(Seat& seat) {
  if (!seat.told) seat.told = tell_caught(seat.on_exception);
}

void Engine::arm(bool on) {
  const auto set = [on](ShmSource* source) {
    if (source != nullptr) on ? source->arm() : source->disarm();
  };
  for (auto* transport : transports_) {
    set(transport->shm_source());
    transport->arm(on);
  }
  for (const Seat& seat : driven_) set(seat.driven->shm_source());
}

bool Engine::silent() const {
  return poll_only_ || std::any_of(driven_.begin(), driven_.end(), [](const Seat& seat) {
           return seat.driven->active() && seat.driven->silent();
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
  const auto hook = idle_hook_;  // it may set another one
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
  // The engine's thread may be driving, even asleep: it leaves the wheel to a caller.
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
  // Work whose `notify` saw this caller, and so left the thread asleep, came after `work`.
  const bool forgotten = rests_.load(std::memory_order_seq_cst) &&
                         (left_some || leisurely_.load(std::memory_order_seq_cst));
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
  // What was told before is seen now.
  leisurely_.exchange(false, std::memory_order_seq_cst);
  hurried_.exchange(false, std::memory_order_seq_cst);
  {
    const std::lock_guard drive_lock(drive_mutex_);
    drive(leave, this, TimePoint::max());
    if (active() && !urgent()) drive_once();
    pause.unfinished = urgent();
    pause.at_leisure = active() && !pause.unfinished;
  }
  released_.fetch_add(1, std::memory_order_seq_cst);
  wake_queued();
  return pause;
}

// A caller that enqueues and then waits drives by itself: the thread leaves it that chance.
bool Engine::wanted(const Pause& pause) const {
  return stop_.load(std::memory_order_seq_cst) ||
         (callers_.load(std::memory_order_seq_cst) == 0 &&
          changers_.load(std::memory_order_seq_cst) == 0 &&
          (pause.unfinished || pause.work != work_.load(std::memory_order_seq_cst) ||
           (!pause.at_leisure && leisurely_.load(std::memory_order_seq_cst))));
}

bool Engine::rest(std::unique_lock<std::mutex>& lock, const Pause& pause) {
  const auto called = [&] {
    // First: what comes later will notify.
    waits_.store(true, std::memory_order_seq_cst);
    rests_.store(!pause.at_leisure, std::memory_order_seq_cst);
    return wanted(pause);
  };
  bool was_called = true;
  if (pause.at_leisure) {
    was_called = idle_.wait_for(lock, kLeisure, called);
  } else {
    idle_.wait(lock, called);
  }
  waits_.store(false, std::memory_order_relaxed);
  rests_.store(false, std::memory_order_relaxed);
  return was_called;
}

}  // namespace hetccl::progress
