// Somebody on the line: while a Wiretap lives, every TCP connection that this process dials goes
// through it, for wiretap.cc replaces connect(2). It reads along, and falsifies on demand.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "fake/thread.h"
#include "net/socket.h"

namespace hetccl::comm {

/// Thread-safe. One at a time.
class Wiretap {
 public:
  Wiretap();
  ~Wiretap();
  Wiretap(const Wiretap&) = delete;
  Wiretap& operator=(const Wiretap&) = delete;

  /// Whether `bytes` have been seen on any connection, either way.
  [[nodiscard]] bool has_seen(std::string_view bytes);
  [[nodiscard]] size_t bytes_seen();
  /// Bytes that the first connection's dialer has sent so far.
  [[nodiscard]] std::vector<uint8_t> first_dialer();
  /// From now on flips one bit of the next bytes on each connection to `port`, or (`other`) on each
  /// to any other port.
  void falsify(uint16_t port, bool other);

  /// Stands in for connect(2): dials the tap instead of `wanted`.
  int redirect(int fd, const sockaddr_storage& wanted);

 private:
  struct Line {
    Fd ends[2];  // of the dialer and of whom it wants
    uint16_t port = 0;
    std::vector<uint8_t> said[2];
    bool falsify = false;
  };
  void accept_all();
  void carry(Line& line, int from);

  net::Listener listener_;
  std::mutex mutex_;  // guards the members below, except the descriptors
  std::condition_variable changed_;
  std::map<uint16_t, sockaddr_storage> wanted_;  // by the port from which was dialled
  std::list<Line> lines_;
  std::list<fake::Thread> carriers_;
  bool ending_ = false;
  fake::Thread acceptor_;
};

}  // namespace hetccl::comm
