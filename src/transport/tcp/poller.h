// The epoll instance of one thread that moves streams: whoever drives the engine, or a mover.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace hetccl::transport::tcp {

/// A place among the descriptors of an epoll instance.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Handles epoll's `events`, at most `*budget` bytes of work, which it reduces. True when
  /// anything moved.
  virtual bool on_events(uint32_t events, size_t* budget) = 0;
};

/// What another thread may have work for.
class Kicked {
 public:
  virtual ~Kicked() = default;
  virtual bool on_kick(size_t* budget) = 0;
};

class Poller {
 public:
  static Result<std::unique_ptr<Poller>> create();

  /// Handles what there is, without blocking: true when anything moved, or somebody rang.
  bool progress();
  /// Polls readable when `progress` has something to do.
  [[nodiscard]] int fd() const { return epoll_.get(); }
  /// Held where a channel is created or closed: no events or kicks are handled meanwhile.
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

  /// Has epoll tell `watched` of `events` of `fd`, which it told of `before`; 0: of none. A system
  /// error in errno where that fails.
  bool watch(int fd, uint32_t before, uint32_t events, Watched& watched);

  /// Its thread calls `kicked.on_kick` soon. Thread-safe, as is `ring`.
  void kick(Kicked& kicked);
  /// No longer. During a pause.
  void forget(const Kicked& kicked);
  /// Its thread looks at what it waits for.
  void ring();

 private:
  Poller(Fd epoll, Fd bell) : epoll_(std::move(epoll)), bell_(std::move(bell)) {}
  void answer(size_t* budget);

  void ring_locked();

  const Fd epoll_, bell_;
  std::mutex mutex_;             // held while events and kicks are handled
  std::atomic<int> pauses_{0};   // threads that want it, or have it, for a pause
  std::atomic<int> watched_{0};  // descriptors: asking about none takes no system call
  size_t turn_ = 0;
  std::mutex bell_mutex_;          // of what follows, and of what the bell holds
  std::atomic<bool> rung_{false};  // as the bell is
  std::vector<Kicked*> kicks_, taken_;
};

}  // namespace hetccl::transport::tcp
