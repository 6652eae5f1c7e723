#include "transport/tcp/poller.h"

#include <doctest/doctest.h>
#include <poll.h>

#include <thread>

#include "fake/thread.h"

namespace hetccl::transport::tcp {
namespace {

bool polls_readable(const Poller& poller) {
  pollfd entry{poller.fd(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

class Counted : public Kicked {
 public:
  bool on_kick(size_t* /*budget*/) override {
    kicks.fetch_add(1);
    return true;
  }
  std::atomic<int> kicks{0};
};

TEST_CASE("every kick arrives though its receiver is awake, and leaves a silent bell") {
  constexpr int kRounds = 200, kKicks = 200, kPatience = 100;
  const auto poller = std::move(Poller::create()).value();
  for (int round = 0; round < kRounds; ++round) {
    Counted kicked;
    fake::Thread kicker([&] {
      for (int i = 0; i < kKicks; ++i) {
        poller->kick(kicked);
        // Each kick meets the receiver in another state.
        while (i % 3 != 0 && kicked.kicks.load() <= i) std::this_thread::yield();
      }
    });
    for (int idle = 0; kicked.kicks.load() < kKicks;) {
      idle = poller->progress() ? 0 : idle + 1;
      if (idle > kPatience) std::this_thread::yield();  // lets a kicker on the same core run
    }
    kicker.join();
    while (poller->progress()) {
    }
    CHECK(kicked.kicks.load() == kKicks);
    CHECK_FALSE(polls_readable(*poller));
  }
  poller->ring();
  CHECK(polls_readable(*poller));
  CHECK(poller->progress());
  CHECK_FALSE(polls_readable(*poller));
  CHECK_FALSE(poller->progress());
}

TEST_CASE("what is forgotten is kicked no more") {
  const auto poller = std::move(Poller::create()).value();
  Counted kicked;
  poller->kick(kicked);
  {
    const Poller::Pause pause(*poller);
    poller->forget(kicked);
  }
  poller->progress();
  CHECK(kicked.kicks.load() == 0);
}

}  // namespace
}  // namespace hetccl::transport::tcp
