// Whether packets reach the other end of a connection: whatever its process does, its kernel
// answers.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace hetccl::net {

/// Has the kernel end a connection on which nothing moves, once the other end's host has answered
/// no probe for about `liveness` (whole seconds, two at least).
void keep_alive(int fd, std::chrono::milliseconds liveness);

/// Has the socket take no more than `bytes` that it has not sent yet: beside connections by faster
/// cards, a queue of megabytes in a slow one would end long after theirs.
void limit_unsent(int fd, int bytes);

/// The same of a connection with data on its way, for which TCP sends no probes and repeats itself
/// for a quarter of an hour. TCP_USER_TIMEOUT would also end one whose reader is late, which is no
/// fault. One thread at a time.
class Path {
 public:
  /// For how long, by the looks so far, the other end's host has acknowledged nothing of what was
  /// sent; zero while it answers.
  Duration silence(int fd, TimePoint now);

 private:
  TimePoint unanswered_since_ = TimePoint::max();
};

}  // namespace hetccl::net
