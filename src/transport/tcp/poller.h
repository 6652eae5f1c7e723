// The epoll instance of one thread that moves streams: the engine's driver, or a mover.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace hetccl::transport::tcp {

/// Handles the events of one descriptor.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Handles epoll's `events`. Does at most `*budget` bytes of work, and subtracts them from it.
  /// Returns true if anything moved.
  virtual bool on_events(uint32_t events, size_t* budget) = 0;
};

/// Receives work from another thread.
class Kicked {
 public:
  virtual ~Kicked() = default;
  virtual bool on_kick(size_t* budget) = 0;
};

class Poller {
 public:
  static Result<std::unique_ptr<Poller>> create();

  /// Handles all events without blocking. Returns true if anything moved or the bell rang.
  bool progress();
  /// Polls readable when `progress` has something to do.
  [[nodiscard]] int fd() const { return epoll_.get(); }
  /// Held while a channel is created or closed: no event or kick is handled meanwhile.
  class Pause {
   public:
    explicit Pause(Poller& poller) : poller_(poller) {
      poller_.pauses_.fetch_add(1, std::memory_order_seq_cst);
      poller_.mutex_.lock();
    }
    ~Pause() {
      poller_.pauses_.fetch_sub(1, std::memory_order_seq_cst);
      poller_.mutex_.unlock();
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Poller& poller_;
  };

  /// Watches `events` of `fd` for `watched`, instead of the events `before`; 0: none. On failure a
  /// system error is in errno.
  bool watch(int fd, uint32_t before, uint32_t events, Watched& watched);

  /// Makes the poller's thread call `kicked.on_kick` soon. Thread-safe, as is `ring`.
  void kick(Kicked& kicked);
  /// Cancels kicks of `kicked`. Call during a pause.
  void forget(const Kicked& kicked);
  /// Wakes the poller's thread.
  void ring();

 private:
  Poller(Fd epoll, Fd bell) : epoll_(std::move(epoll)), bell_(std::move(bell)) {}
  void answer(size_t* budget);

  void ring_locked();

  const Fd epoll_, bell_;
  std::mutex mutex_;             // held while events and kicks are handled
  std::atomic<int> pauses_{0};   // threads that wait for a pause, or have one
  std::atomic<int> watched_{0};  // descriptors; with none, `progress` makes no system call
  size_t turn_ = 0;
  std::mutex bell_mutex_;          // guards the members below, and the bell's content
  std::atomic<bool> rung_{false};  // true while the bell is rung
  std::vector<Kicked*> kicks_, taken_;
};

}  // namespace hetccl::transport::tcp
