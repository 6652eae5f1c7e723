#include "transport/ncclnet/core.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "transport/ncclnet/channel.h"

namespace hetccl::transport::ncclnet {
namespace {

// While chunks move, looks at sockets only every so many turns: each look is a system call.
constexpr uint32_t kTurns = 64;
constexpr size_t kEventsPerTurn = 32;
// The pause between two looks at requests that do not move.
constexpr Duration kLeastRest = std::chrono::microseconds(20);
constexpr Duration kMostRest = std::chrono::milliseconds(1);

}  // namespace

Result<std::shared_ptr<Core>> Core::create(std::shared_ptr<const Plugin> plugin,
                                           std::vector<Device> devices, const Config& config) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  Fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  epoll_event event{EPOLLIN, {.ptr = nullptr}};
  if (!epoll.valid() || !timer.valid() ||
      ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, timer.get(), &event) != 0)
    return system_error("epoll for a net plug-in", errno);
  return std::shared_ptr<Core>(
      new Core(std::move(plugin), std::move(devices), config, std::move(epoll), std::move(timer)));
}

Core::Core(std::shared_ptr<const Plugin> plugin, std::vector<Device> devices, const Config& config,
           Fd epoll, Fd timer)
    : plugin_(std::move(plugin)),
      devices_(std::move(devices)),
      config_(config),
      epoll_(std::move(epoll)),
      timer_(std::move(timer)),
      probes_(devices_.size()),
      rest_(kLeastRest) {}

Status Core::add(NetChannel& channel, int wire) {
  epoll_event event{EPOLLIN | EPOLLRDHUP, {.ptr = &channel}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wire, &event) != 0)
    return system_error("watching a connection for a net plug-in", errno);
  channels_.push_back(&channel);
  return {};
}

void Core::remove(NetChannel& channel) {
  std::erase(channels_, &channel);
}

void Core::watch_writes(NetChannel& channel, int wire, bool writes) {
  epoll_event event{EPOLLIN | EPOLLRDHUP | (writes ? EPOLLOUT : 0U), {.ptr = &channel}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, wire, &event);
}

void Core::unwatch(int wire) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, wire, nullptr);
}

bool Core::progress() {
  const std::lock_guard lock(mutex);
  const TimePoint now = steady_clock().now();
  bool moved = false;
  for (NetChannel* channel : channels_) moved |= channel->progress(now);
  if (!moved || ++turn_ % kTurns == 0) moved |= handle_events();
  if (moved)
    rest_ = kLeastRest;
  else
    rest();
  return moved;
}

bool Core::handle_events() {
  if (channels_.empty() && !resting_) return false;  // no system call
  std::array<epoll_event, kEventsPerTurn> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  bool moved = false;
  for (int i = 0; i < n; ++i) {
    auto* channel = static_cast<NetChannel*>(events[static_cast<size_t>(i)].data.ptr);
    if (channel != nullptr) {
      channel->on_event();
      moved = true;
      continue;
    }
    uint64_t expired = 0;
    (void)::read(timer_.get(), &expired, sizeof expired);
    resting_ = false;
    rest_ = std::min(rest_ * 2, kMostRest);
  }
  return moved;
}

// Channels without requests need no timer, because their connections wake them.
void Core::rest() {
  const bool waits = std::any_of(channels_.begin(), channels_.end(),
                                 [](const NetChannel* channel) { return channel->is_busy(); });
  if (!waits || resting_) return;
  const itimerspec until{{}, {0, static_cast<decltype(timespec::tv_nsec)>(rest_.count())}};
  resting_ = ::timerfd_settime(timer_.get(), 0, &until, nullptr) == 0;
}

}  // namespace hetccl::transport::ncclnet
