// The progress engine of one Runtime: one thread that drives every communicator's transports,
// cooperative devices and operations while they have work. A caller that waits drives it itself, so
// a small blocking collective costs no context switch. Idle, it uses no CPU. Busy without progress,
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

/// An object that the engine polls, by one thread at a time.
class Driven {
 public:
  virtual ~Driven() = default;
  /// Moves what it can without blocking. Returns true if anything moved.
  virtual bool poll(TimePoint now) = 0;
  /// Returns whether it needs driving at all.
  [[nodiscard]] virtual bool active() const = 0;
  /// Returns whether it needs driving without delay; otherwise an occasional poll suffices.
  [[nodiscard]] virtual bool urgent() const { return active(); }
  /// Non-null while peers of the host advance it through shared memory.
  [[nodiscard]] virtual ShmSource* shm_source() = 0;
  /// Returns whether something may advance it without waking anybody.
  [[nodiscard]] virtual bool silent() const = 0;
};

/// Thread-safe.
class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(const Clock& clock);
  ~Engine();

  /// Add sources that live as long as the engine. Call before the first `add`.
  void use(transport::Transport& transport);
  void use(device::Device& device);

  /// Polls `driven` until `remove`, after which the engine does not touch it. If it or a source
  /// throws, the driver passes the first exception to `on_exception`; so does misuse of the engine,
  /// as InternalError.
  void add(Driven& driven, OnException on_exception);
  void remove(Driven& driven);

  /// Announces new work; call after enqueueing. `at_once`: no caller will come to wait for it.
  void notify(bool at_once = false);
  /// Announces work that is not urgent; nearly free while there is other such work.
  void notify_later();
  /// Runs `change` while nobody drives, e.g. to close a channel. `change` must neither wait for
  /// progress nor call a device (see `drives`).
  void exclusively(const std::function<void()>& change);
  /// Returns whether the calling thread drives an engine, or runs a `change`. It must not call a
  /// device then: a driver may block until device work ends, which may wait for this engine.
  [[nodiscard]] static bool drives();

  /// Drives until `done()` or the deadline. Returns `done()`. Any number of threads may wait.
  /// `done` is called from this thread only, and must be a cheap check of atomics.
  template <typename Done>
  bool wait(Done done, TimePoint deadline) {
    return wait_until([](void* context) { return (*static_cast<Done*>(context))(); }, &done,
                      deadline);
  }

  /// Makes threads in `wait` call `hook` (may be empty) when nothing has moved for a while, and
  /// then at least every kHookPeriod, one thread at a time. The hook must neither block nor wait in
  /// the engine, and may set another hook. After this returns, no other thread runs the previous
  /// hook.
  void set_idle_hook(std::function<void()> hook);

  [[nodiscard]] Waker& waker() { return *waker_; }
  [[nodiscard]] const Clock& clock() const { return clock_; }

 private:
  using Check = bool (*)(void*);
  // A mutex that can tell whether the calling thread holds one of its kind.
  class Wheel {
   public:
    void lock();
    bool try_lock();
    void unlock();
    /// Returns whether the calling thread holds it.
    [[nodiscard]] bool is_held() const;

   private:
    std::mutex mutex_;
    std::atomic<std::thread::id> holder_{};
  };
  Engine(const Clock& clock, std::unique_ptr<Waker> waker);
  bool wait_until(Check done, void* context, TimePoint deadline);
  void call_idle_hook();
  // The state in which the thread stopped driving.
  struct Pause {
    uint64_t work = 0;  // count of notices that it has seen
    bool unfinished = false, not_urgent = false;
  };
  void run();  // the thread's function
  Pause drive_thread();
  [[nodiscard]] bool wanted(const Pause& pause) const;
  // Sleeps. Returns whether the thread was called; otherwise it is only time to look.
  bool rest(std::unique_lock<std::mutex>& lock, const Pause& pause);
  // Require drive_mutex_.
  bool drive_once();
  bool poll_sources();
  struct Entry {
    Driven* driven = nullptr;
    OnException on_exception;
    bool told = false;
  };
  bool poll(Entry& entry) const;
  static void report_caught(Entry& entry);
  bool require(bool holds, const char* invariant);
  // Requires drive_mutex_. `idles`: also returns when the idle hook is due.
  void drive(Check done, void* context, TimePoint deadline, bool idles = false);
  void sleep(TimePoint deadline);  // requires drive_mutex_
  void arm(bool on);
  void wake_thread();  // does nothing if a caller drives
  void wake_queued();
  [[nodiscard]] bool active();
  [[nodiscard]] bool urgent();
  [[nodiscard]] bool silent() const;

  const Clock& clock_;
  TimePoint now_{};  // time of the last drive_once
  std::unique_ptr<Waker> waker_;
  std::vector<pollfd> sleeps_on_;  // the waker's descriptor, and those of transports
  std::vector<transport::Transport*> transports_;
  std::vector<device::Device*> devices_;
  bool poll_only_ = false;  // some source advances without a signal

  std::recursive_mutex hook_mutex_;  // guards the hook while it runs, which may change it
  std::shared_ptr<const std::function<void()>> idle_hook_;  // guarded by hook_mutex_
  std::atomic<bool> has_hook_{false};

  Wheel drive_mutex_;        // held by the driver
  std::list<Entry> driven_;  // guarded by drive_mutex_

  std::mutex mutex_;                 // guards the condition variables' predicates
  std::condition_variable idle_;     // the engine's thread waits here
  std::condition_variable handoff_;  // callers wait here while another thread drives
  std::atomic<int> callers_{0};      // threads in `wait`
  std::atomic<int> queued_{0};       // of these, threads that do not drive
  std::atomic<int> changers_{0};     // threads that want `drive_mutex_` without driving
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> waits_{false};       // the engine's thread waits for a notice
  std::atomic<bool> rests_{false};       // it waits, and polls nothing meanwhile
  std::atomic<bool> not_urgent_{false};  // work that is not urgent has come since the last look
  std::atomic<bool> lingers_{false};     // it waits for a caller to take over
  std::atomic<bool> hurried_{false};     // a notice said that no caller comes
  std::atomic<uint64_t> work_{0};        // counts notify calls
  std::atomic<uint64_t> released_{0};    // counts how often a driver stopped
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace hetccl::progress
