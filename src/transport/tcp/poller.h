// What the channels of one transport share: the epoll instance and the count of bytes sent. Kept
// alive by whichever of them goes last.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "net/socket.h"

namespace hetccl::transport::tcp {

/// A place among the descriptors of an epoll instance.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Handles epoll's `events`, at most `*budget` bytes of work, which it reduces. True when
  /// anything moved.
  virtual bool on_events(uint32_t events, size_t* budget) = 0;
};

struct Poller {
  Fd epoll;
  /// Held while events are handled: a channel is created or closed by another thread at no other
  /// time.
  std::mutex mutex;
  std::atomic<int> watched{0};  ///< descriptors in it: asking about none takes no system call
  std::atomic<uint64_t> bytes_sent{0};
};

}  // namespace hetccl::transport::tcp
