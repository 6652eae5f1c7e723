// The progress engine of one Runtime: one thread that drives every communicator's transports,
// cooperative devices and operations while they have work. A caller that waits drives it itself, so
// a small blocking collective costs no context switch. Idle, it uses no CPU; busy without progress,
// it spins briefly, then sleeps until a socket, a peer of the host, or new work wakes it.
#pragma once

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/exception.h"
#include "base/status.h"
#include "base/waker.h"
#include "device/device.h"
#include "transport/transport.h"

namespace hetccl::progress {

/// Something that the engine polls, by one thread at a time.
class Driven {
 public:
  virtual ~Driven() = default;
  /// Moves what can be moved without blocking; true when anything moved.
  virtual bool poll(TimePoint now) = 0;
  /// Whether it needs driving at all.
  [[nodiscard]] virtual bool active() const = 0;
  /// Whether it does, and without delay: else a look now and then is enough.
  [[nodiscard]] virtual bool urgent() const { return active(); }
  /// Non-null while peers of the host advance it through shared memory.
  [[nodiscard]] virtual ShmSource* shm_source() = 0;
  /// Whether something advances it that wakes nobody.
  [[nodiscard]] virtual bool silent() const = 0;
};

/// Thread-safe.
class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(const Clock& clock);
  ~Engine();

  /// Sources that live as long as the engine. Before the first `add`.
  void use(transport::Transport& transport);
  void use(device::Device& device);

  /// `driven` is polled until `remove`, after whose return the engine does not touch it. If it
  /// throws, or a source does, whoever drives hands the first exception to `on_exception`.
  /// The same where the engine is used as it must not be: InternalError.
  void add(Driven& driven, OnException on_exception);
  void remove(Driven& driven);

  /// New work may be there: call after enqueueing. `at_once`: nobody will come to wait for it.
  void notify(bool at_once = false);
  /// The same of work that is not urgent: costs next to nothing while there is other such work.
  void notify_at_leisure();
  /// Runs `change` while nobody drives, e.g. to close a channel. Must neither wait for progress nor
  /// call a device (see `drives`).
  void exclusively(const std::function<void()>& change);
  /// Whether the calling thread drives an engine, or runs its `change`. It must not call a device
  /// then: a driver may block the call until device work ends, which may wait for this engine.
  [[nodiscard]] static bool drives();

  /// Drives until `done()` or the deadline: whether it is done. Any number of threads may wait;
  /// `done` is called from this thread alone, and must be a cheap check of atomics.
  template <typename Done>
  bool wait(Done done, TimePoint deadline) {
    return wait_until([](void* context) { return (*static_cast<Done*>(context))(); }, &done,
                      deadline);
  }

  /// Threads in `wait` call `hook` (may be empty) when nothing has moved for a while, and then at
  /// least every kHookPeriod, one thread at a time. It must neither block nor wait in the engine,
  /// and may set another hook. After this returns, no other thread is in the one before.
  void set_idle_hook(std::function<void()> hook);

  [[nodiscard]] Waker& waker() { return *waker_; }
  [[nodiscard]] const Clock& clock() const { return clock_; }

 private:
  using Check = bool (*)(void*);
  // A mutex that tells each thread whether it holds one of them.
  class Wheel {
   public:
    void lock();
    bool try_lock();
    void unlock();
    /// The calling thread holds it.
    [[nodiscard]] bool is_held() const;

   private:
    std::mutex mutex_;
    std::atomic<std::thread::id> holder_{};
  };
  Engine(const Clock& clock, std::unique_ptr<Waker> waker);
  bool wait_until(Check done, void* context, TimePoint deadline);
  void call_idle_hook();
  // Why the thread stopped driving.
  struct Pause {
    uint64_t work = 0;  // notices that it has seen
    bool unfinished = false, at_leisure = false;
  };
  void run();  // the thread
  Pause drive_thread();
  [[nodiscard]] bool wanted(const Pause& pause) const;
  // Whether the thread was called, and it is not only time to look.
  bool rest(std::unique_lock<std::mutex>& lock, const Pause& pause);
  // With drive_mutex_ held.
  bool drive_once();
  bool poll_sources();
  struct Seat {
    Driven* driven = nullptr;
    OnException on_exception;
    bool told = false;
  };
  bool poll(Seat& seat) const;
  static void tell(Seat& seat);
  bool require(bool holds, const char* invariant);
  // With drive_mutex_ held. `idles`: returns, too, when it is time for the idle hook.
  void drive(Check done, void* context, TimePoint deadline, bool idles = false);
  void sleep(TimePoint deadline);  // with drive_mutex_ held
  void arm(bool on);
  void wake_thread();  // unless a caller drives
  void wake_queued();
  [[nodiscard]] bool active();
  [[nodiscard]] bool urgent();
  [[nodiscard]] bool silent() const;

  const Clock& clock_;
  TimePoint now_{};  // of the last drive_once
  std::unique_ptr<Waker> waker_;
  std::vector<pollfd> sleeps_on_;  // the waker's descriptor, and those of transports
  std::vector<transport::Transport*> transports_;
  std::vector<device::Device*> devices_;
  bool poll_only_ = false;  // a source advances and nothing announces it

  std::recursive_mutex hook_mutex_;  // guards the hook while it runs, which may change it
  std::shared_ptr<const std::function<void()>> idle_hook_;  // guarded by hook_mutex_
  std::atomic<bool> has_hook_{false};

  Wheel drive_mutex_;       // held by whoever drives
  std::list<Seat> driven_;  // guarded by drive_mutex_

  std::mutex mutex_;                 // guards the condition variables' predicates
  std::condition_variable idle_;     // the engine's thread waits here
  std::condition_variable handoff_;  // callers wait here while another thread drives
  std::atomic<int> callers_{0};      // threads inside `wait`
  std::atomic<int> queued_{0};       // of those, the ones that do not drive
  std::atomic<int> changers_{0};     // threads that want `drive_mutex_` without driving
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> waits_{false};      // the engine's thread does, for somebody to notify it
  std::atomic<bool> rests_{false};      // it does, and looks at nothing meanwhile
  std::atomic<bool> leisurely_{false};  // work that is not urgent has come since it looked
  std::atomic<bool> lingers_{false};    // it does, for a caller to take the wheel
  std::atomic<bool> hurried_{false};    // by a notice that nobody comes
  std::atomic<uint64_t> work_{0};       // counts notify calls
  std::atomic<uint64_t> released_{0};   // counts how often the wheel was given up
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace hetccl::progress
