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
  /// Held while events and kicks are handled: a channel is created or closed by another thread at
  /// no other time.
  std::mutex& mutex() { return mutex_; }

  /// Has epoll tell `watched` of `events` of `fd`, which it told of `before`; 0: of none. A system
  /// error in errno where that fails.
  bool watch(int fd, uint32_t before, uint32_t events, Watched& watched);

  /// Its thread calls `kicked.on_kick` soon. Thread-safe, as is `ring`.
  void kick(Kicked& kicked);
  /// No longer. With the mutex held.
  void forget(const Kicked& kicked);
  /// Its thread looks at what it waits for.
  void ring();

 private:
  Poller(Fd epoll, Fd bell) : epoll_(std::move(epoll)), bell_(std::move(bell)) {}
  bool answer(size_t* budget);

  const Fd epoll_, bell_;
  std::mutex mutex_;
  std::atomic<int> watched_{0};  // descriptors: asking about none takes no system call
  std::atomic<bool> rung_{false};
  size_t turn_ = 0;
  std::mutex kicks_mutex_;
  std::vector<Kicked*> kicks_, taken_;
};

}  // namespace hetccl::transport::tcp
