#include "transport/tcp/movers.h"

#include <poll.h>

#include <system_error>

#include "base/clock.h"
#include "base/thread.h"

namespace hetccl::transport::tcp {

namespace {

// Spin this long before sleeping: about the cost of a wake-up.
constexpr auto kSpin = std::chrono::microseconds(20);

}  // namespace

Result<std::shared_ptr<Movers>> Movers::create(size_t threads, std::chrono::milliseconds liveness) {
  std::vector<std::unique_ptr<Poller>> pollers;
  for (size_t i = 0; i <= threads; ++i) {
    HETCCL_ASSIGN(auto poller, Poller::create());
    pollers.push_back(std::move(poller));
  }
  HETCCL_ASSIGN(auto paths, PathWatch::create(*pollers.front(), liveness));
  return std::shared_ptr<Movers>(new Movers(std::move(pollers), std::move(paths)));
}

Movers::~Movers() {
  stop_.store(true, std::memory_order_seq_cst);
  for (const auto& poller : pollers_) poller->ring();
  for (std::thread& thread : threads_) thread.join();
}

Status Movers::start() {
  std::lock_guard lock(mutex_);
  threads_.reserve(pollers_.size());
  while (threads_.size() + 1 < pollers_.size()) {
    Poller& poller = *pollers_[threads_.size() + 1];
    HETCCL_ASSIGN(auto thread, start_thread("hetccl-tcp", [this, &poller] { run(poller); }));
    threads_.push_back(std::move(thread));
  }
  return {};
}

void Movers::run(Poller& poller) const {
  TimePoint idle_since = TimePoint::max();
  while (!stop_.load(std::memory_order_seq_cst)) {
    if (poller.progress()) {
      idle_since = TimePoint::max();
      continue;
    }
    const TimePoint now = steady_clock().now();
    idle_since = std::min(idle_since, now);
    if (now - idle_since < kSpin) {
      std::this_thread::yield();
      continue;
    }
    pollfd readable{poller.fd(), POLLIN, 0};
    ::poll(&readable, 1, -1);
  }
}

}  // namespace hetccl::transport::tcp
