// Lets a peer of the same host wake a sleeping progress engine: the peer opens the write end of a
// pipe through /proc/<pid>/fd/<fd>. Ringing costs a system call, so peers only ring if shared
// memory says that the other sleeps.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace hetccl {

/// Names a Waker to other processes of the host. Trivially copyable: it is sent in shared memory
/// and in frames.
struct WakerAddress {
  int32_t pid = 0;
  int32_t fd = -1;
};

/// The sleeping side. Thread-safe.
class Waker {
 public:
  static Result<std::unique_ptr<Waker>> create();
  ~Waker();
  /// Returns a descriptor that polls readable once rung.
  [[nodiscard]] int fd() const { return read_fd_; }
  void ring();
  /// Forgets the rings so far.
  void drain();
  [[nodiscard]] WakerAddress address() const;

 private:
  Waker(int read_fd, int write_fd) : read_fd_(read_fd), write_fd_(write_fd) {}
  int read_fd_, write_fd_;
};

/// The ringing side. Move-only, thread-safe.
class RemoteWaker {
 public:
  /// Returns SystemError if /proc refuses (another user, another PID namespace).
  static Result<RemoteWaker> open(WakerAddress address);
  RemoteWaker() = default;
  RemoteWaker(RemoteWaker&& other) noexcept;
  RemoteWaker& operator=(RemoteWaker&& other) noexcept;
  ~RemoteWaker();
  void ring() const;

 private:
  int fd_ = -1;
};

/// A source that peers of the same host advance through shared memory. Before the engine sleeps it
/// arms every source, polls everything once more, and only then waits on its Waker. A peer that
/// advances an armed source rings it.
class ShmSource {
 public:
  virtual ~ShmSource() = default;
  virtual void arm() = 0;
  virtual void disarm() = 0;
};

}  // namespace hetccl
