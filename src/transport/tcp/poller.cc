#include "transport/tcp/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

namespace hetccl::transport::tcp {

namespace {

// The bytes that one call of progress() may move, because the engine drives other things too.
constexpr size_t kProgressBudget = 1 << 20;

}  // namespace

Result<std::unique_ptr<Poller>> Poller::create() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  Fd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  if (!epoll.valid() || !bell.valid() ||
      ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, bell.get(), &event) != 0)
    return system_error("epoll for transport tcp", errno);
  return std::unique_ptr<Poller>(new Poller(std::move(epoll), std::move(bell)));
}

bool Poller::progress() {
  const bool rung = rung_.load(std::memory_order_acquire);
  if (!rung && watched_.load(std::memory_order_acquire) == 0) return false;
  // Yield to a thread that wants a pause: mutexes are unfair, and a loop of progress() would always
  // win.
  if (pauses_.load(std::memory_order_seq_cst) > 0) std::this_thread::yield();
  std::lock_guard lock(mutex_);
  size_t budget = kProgressBudget;
  if (rung) answer(&budget);
  bool moved = rung;
  std::array<epoll_event, 64> events;
  const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  if (ready <= 0) return moved;
  // Start at another stream each time, so that a busy one does not take the whole budget for ever.
  const auto count = static_cast<size_t>(ready);
  const size_t first = turn_++ % count;
  for (size_t i = 0; i < count && budget > 0; ++i) {
    const epoll_event& event = events[(first + i) % count];
    if (event.data.ptr == nullptr) continue;  // the bell, for the next call
    moved |= static_cast<Watched*>(event.data.ptr)->on_events(event.events, &budget);
  }
  return moved;
}

void Poller::answer(size_t* budget) {
  {
    std::lock_guard lock(bell_mutex_);
    uint64_t count = 0;
    (void)!::read(bell_.get(), &count, sizeof count);
    rung_.store(false, std::memory_order_seq_cst);
    std::swap(kicks_, taken_);
  }
  for (Kicked* kicked : taken_) kicked->on_kick(budget);
  taken_.clear();
}

bool Poller::watch(int fd, uint32_t before, uint32_t events, Watched& watched) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &watched;
  const int operation = events == 0 ? EPOLL_CTL_DEL : before == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0) return false;
  watched_.fetch_add((events != 0 ? 1 : 0) - (before != 0 ? 1 : 0));
  return true;
}

void Poller::kick(Kicked& kicked) {
  std::lock_guard lock(bell_mutex_);
  kicks_.push_back(&kicked);
  ring_locked();
}

void Poller::forget(const Kicked& kicked) {
  std::lock_guard lock(bell_mutex_);
  std::erase(kicks_, &kicked);
}

void Poller::ring() {
  std::lock_guard lock(bell_mutex_);
  ring_locked();
}

void Poller::ring_locked() {
  if (rung_.exchange(true, std::memory_order_seq_cst)) return;
  const uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof one);
}

}  // namespace hetccl::transport::tcp
