// Checks whether packets reach the other end of a connection. The peer's kernel answers, even if
// the peer's process hangs.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace hetccl::net {

/// Makes the kernel close an idle connection once the peer's host has answered no probe for about
/// `liveness` (whole seconds, at least two).
void keep_alive(int fd, std::chrono::milliseconds liveness);

/// Limits the unsent bytes that the socket holds: next to faster NICs, a queue of megabytes on a
/// slow one would finish long after theirs.
void limit_unsent(int fd, int bytes);

/// Watches a connection with data in flight, for which TCP sends no keep-alive probes and
/// retransmits for a quarter of an hour. TCP_USER_TIMEOUT would also close a connection whose
/// reader is slow, which is no fault. One thread at a time.
class Path {
 public:
  /// Returns how long, by the calls so far, the peer's host has acknowledged none of the sent data;
  /// zero while it answers.
  Duration silence(int fd, TimePoint now);

 private:
  TimePoint unanswered_since_ = TimePoint::max();
};

}  // namespace hetccl::net
