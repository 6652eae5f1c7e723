#include "net/path.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace hetccl::net {

namespace {

using std::chrono::milliseconds;

constexpr int kProbes = 3;
constexpr int64_t kLongest = 32'767;  // seconds, the kernel's limit
// Probes of a closed window that may be lost; each follows after twice the time.
constexpr int kLostWindowProbes = 3;

}  // namespace

void keep_alive(int fd, milliseconds liveness) {
  const auto whole = std::chrono::ceil<std::chrono::seconds>(liveness).count();
  const int pause = static_cast<int>(std::clamp<int64_t>(whole / (kProbes + 2), 1, kLongest));
  const int idle =
      static_cast<int>(std::clamp<int64_t>(whole - int64_t{kProbes} * pause, 1, kLongest));
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof pause);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

void limit_unsent(int fd, int bytes) {
  ::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

Duration Path::silence(int fd, TimePoint now) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  const bool unanswered = ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
                          (info.tcpi_retransmits > 0 || info.tcpi_probes >= kLostWindowProbes);
  if (!unanswered) {
    unanswered_since_ = TimePoint::max();
    return {};
  }
  unanswered_since_ = std::min(unanswered_since_, now);
  return std::min<Duration>(now - unanswered_since_, milliseconds(info.tcpi_last_ack_recv));
}

}  // namespace hetccl::net
