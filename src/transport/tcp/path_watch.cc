#include "transport/tcp/path_watch.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "transport/tcp/tcp_channel.h"

namespace hetccl::transport::tcp {

namespace {

constexpr int kLooksPerLiveness = 5;

}  // namespace

Result<std::unique_ptr<PathWatch>> PathWatch::create(Poller& engine,
                                                     std::chrono::milliseconds liveness) {
  Fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const int64_t ns = std::chrono::nanoseconds(liveness).count() / kLooksPerLiveness;
  const timespec period{ns / 1'000'000'000, ns % 1'000'000'000};
  const itimerspec times{period, period};
  if (!timer.valid() || ::timerfd_settime(timer.get(), 0, &times, nullptr) != 0)
    return system_error("a timer for transport tcp", errno);
  return std::unique_ptr<PathWatch>(new PathWatch(engine, liveness, std::move(timer)));
}

void PathWatch::add(TcpChannel& channel) {
  channels_.push_back(&channel);
  watch(true);
}

void PathWatch::remove(const TcpChannel& channel) {
  std::erase(channels_, &channel);
  watch(!channels_.empty());
}

// Without channels the poller has nothing to check.
void PathWatch::watch(bool on) {
  if (on == watched_) return;
  constexpr uint32_t kEvents = EPOLLIN;
  if (engine_.watch(timer_.get(), watched_ ? kEvents : 0, on ? kEvents : 0, *this)) watched_ = on;
}

bool PathWatch::on_events(uint32_t /*events*/, size_t* /*budget*/) {
  uint64_t times = 0;
  [[maybe_unused]] const ssize_t got = ::read(timer_.get(), &times, sizeof times);
  const TimePoint now = steady_clock().now();
  for (TcpChannel* channel : channels_) channel->check_path(now, liveness_);
  return false;
}

}  // namespace hetccl::transport::tcp
