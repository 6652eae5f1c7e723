#include "progress/engine.h"

#include <doctest/doctest.h>
#include <time.h>

#include <array>
#include <chrono>
#include <deque>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/waker.h"
#include "fake/patience.h"
#include "fake/thread.h"

namespace {

using hetccl::Duration;
using hetccl::steady_clock;
using hetccl::TimePoint;
using hetccl::progress::Driven;
using hetccl::progress::Engine;
using std::chrono::milliseconds;

constexpr auto kLimit = hetccl::fake::kHang;  // a longer wait has failed

TimePoint in(Duration duration) {
  return steady_clock().now() + duration;
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Returns whether this process comes to use hardly any processor time. A slow machine takes long to
// come to rest, but a spinning engine never does.
bool becomes_idle() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const double before = cpu_seconds();
    std::this_thread::sleep_for(milliseconds(150));
    if (cpu_seconds() - before < 0.03) return true;
  }
  return false;
}

// Finishes one unit of work per poll, and detects two threads polling it at once.
class Counter : public Driven {
 public:
  void work(uint64_t units) { wanted_.fetch_add(units); }
  [[nodiscard]] bool reached(uint64_t n) const { return finished_.load() >= n; }
  [[nodiscard]] uint64_t polls() const { return polls_.load(); }
  [[nodiscard]] bool overlapped() const { return overlapped_.load(); }
  [[nodiscard]] bool polled() const { return inside_.load(); }
  void hold(bool on) { held_.store(on); }  // polls move nothing meanwhile
  void take_time(bool on) { urgent_.store(!on); }

  bool poll(TimePoint) override {
    if (inside_.exchange(true)) overlapped_.store(true);
    polls_.fetch_add(1);
    const bool moves = !held_.load() && active();
    if (moves) finished_.fetch_add(1);
    inside_.store(false);
    return moves;
  }
  [[nodiscard]] bool active() const override { return finished_.load() < wanted_.load(); }
  [[nodiscard]] bool urgent() const override { return active() && urgent_.load(); }
  // Signals its progress, as shared memory does, so the engine may sleep long.
  [[nodiscard]] hetccl::ShmSource* shm_source() override { return &source_; }
  [[nodiscard]] bool silent() const override { return false; }

 private:
  struct Source : hetccl::ShmSource {
    void arm() override {}
    void disarm() override {}
  };
  Source source_;
  std::atomic<uint64_t> wanted_{0}, finished_{0}, polls_{0};
  std::atomic<bool> inside_{false}, overlapped_{false}, held_{false}, urgent_{true};
};

// Only a descriptor; counts the rings.
class Bell : public hetccl::transport::Transport {
 public:
  void ring() { waker_->ring(); }
  [[nodiscard]] int heard() const { return heard_.load(); }

  [[nodiscard]] std::string name() const override { return "bell"; }
  hetccl::Result<hetccl::transport::Address> listen() override { return refused(); }
  void connect_later(const hetccl::transport::PeerId&, const hetccl::transport::Address&,
                     const std::vector<uint8_t>&, const hetccl::WaitLimit&,
                     Connected connected) override {
    connected(refused());
  }
  void forget(uint64_t, int) override {}
  bool progress() override {
    pollfd rung{waker_->fd(), POLLIN, 0};
    if (poll(&rung, 1, 0) != 1) return false;
    waker_->drain();
    ++heard_;
    return true;
  }
  [[nodiscard]] int poll_fd() const override { return waker_->fd(); }
  [[nodiscard]] hetccl::ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] uint64_t bytes_sent() const override { return 0; }

 private:
  static hetccl::Status refused() {
    return hetccl::error(hetccl::ErrorCode::Unsupported, "a bell connects nobody");
  }
  std::unique_ptr<hetccl::Waker> waker_ = std::move(hetccl::Waker::create()).value();
  std::atomic<int> heard_{0};
};

struct Fixture {
  Fixture() : engine(std::move(Engine::create(steady_clock())).value()) {
    engine->add(counter, {});
  }
  ~Fixture() { engine->remove(counter); }
  // Looks without driving.
  [[nodiscard]] bool reaches(uint64_t n) const {
    const TimePoint limit = in(kLimit);
    while (!counter.reached(n) && steady_clock().now() < limit) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return counter.reached(n);
  }
  Counter counter;
  std::unique_ptr<Engine> engine;
};

}  // namespace

TEST_CASE(
    "a caller that waits drives, and work without a caller is driven by the engine's thread") {
  Fixture f;
  f.counter.work(1000);
  CHECK(f.engine->wait([&] { return f.counter.reached(1000); }, in(kLimit)));
  f.counter.work(1000);
  f.engine->notify();
  CHECK(f.reaches(2000));
}

TEST_CASE("what has time is looked at now and then, and what has not beside it at once") {
  Fixture f;
  f.counter.take_time(true);
  f.counter.hold(true);
  f.counter.work(3);
  f.engine->notify_later();
  const double before = cpu_seconds();
  const TimePoint begin = steady_clock().now(), end = in(std::chrono::milliseconds(300));
  while (steady_clock().now() < end) {
    f.engine->notify_later();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const double passed = std::chrono::duration<double>(steady_clock().now() - begin).count();
  CHECK(f.counter.polls() >= 2);
  CHECK(static_cast<double>(f.counter.polls()) <= 3000 * passed);
  CHECK(cpu_seconds() - before < passed / 2);
  f.counter.hold(false);
  CHECK(f.reaches(3));
  // The engine is idle again: the next notice wakes it.
  for (uint64_t n = 4; n < 50; ++n) {
    f.counter.work(1);
    f.engine->notify_later();
    REQUIRE(f.reaches(n));
  }
  Counter hasty;
  f.engine->add(hasty, {});
  f.counter.hold(true);
  f.counter.work(1);
  f.engine->notify_later();
  hasty.work(100);
  f.engine->notify();
  const TimePoint limit = in(kLimit);
  while (!hasty.reached(100) && steady_clock().now() < limit) std::this_thread::yield();
  CHECK(hasty.reached(100));
  f.engine->remove(hasty);
  f.counter.hold(false);
  CHECK(f.engine->wait([&] { return f.counter.reached(50); }, in(kLimit)));
}

TEST_CASE("many threads wait, each for its own: all see it, and one polls at a time") {
  Fixture f;
  std::array<hetccl::fake::Thread, 6> threads;
  std::atomic<int> seen{0};
  for (size_t t = 0; t < threads.size(); ++t) {
    threads[t] = hetccl::fake::Thread([&, t] {
      for (uint64_t i = 1; i <= 300; ++i) {
        f.counter.work(1);
        const uint64_t mine = i * (t + 1) / threads.size();
        if (f.engine->wait([&] { return f.counter.reached(mine); }, in(kLimit))) ++seen;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(seen.load() == 300 * static_cast<int>(threads.size()));
  CHECK(!f.counter.overlapped());
}

TEST_CASE("work announced while another caller leaves is not forgotten") {
  Fixture f;
  uint64_t total = 0;
  for (int round = 0; round < 2000; ++round) {
    f.counter.work(1);
    const uint64_t first = ++total;
    hetccl::fake::Thread announcer([&] {
      while (!f.counter.reached(first)) std::this_thread::yield();
      f.counter.work(1);
      f.engine->notify();
    });
    CHECK(f.engine->wait([&] { return f.counter.reached(first); }, in(kLimit)));
    announcer.join();
    REQUIRE(f.reaches(++total));
  }
}

TEST_CASE("work that has time, announced while a caller leaves, is not forgotten") {
  Fixture f;
  f.counter.take_time(true);
  uint64_t total = 0;
  for (int round = 0; round < 100; ++round) {
    std::this_thread::sleep_for(std::chrono::microseconds(round % 2 == 0 ? 0 : 300));
    int asked = 0;
    CHECK(f.engine->wait(
        [&] {
          // Called twice before it drives, once while it does, then on the way out.
          if (++asked <= 3) return asked == 3;
          f.counter.work(1);
          ++total;
          f.engine->notify_later();
          return true;
        },
        in(kLimit)));
    REQUIRE(f.reaches(total));
  }
}

TEST_CASE("a wait ends at its deadline, whether nothing moves or everything does") {
  Fixture f;
  f.counter.hold(true);
  f.counter.work(1);
  auto start = steady_clock().now();
  CHECK(!f.engine->wait([] { return false; }, start + milliseconds(20)));
  CHECK(steady_clock().now() - start >= milliseconds(20));
  CHECK(steady_clock().now() - start < kLimit);

  f.counter.work(UINT64_MAX / 2);
  f.counter.hold(false);
  start = steady_clock().now();
  CHECK(!f.engine->wait([] { return false; }, start + milliseconds(20)));
  CHECK(steady_clock().now() - start < kLimit);

  CHECK(f.engine->wait([] { return true; }, TimePoint::min()));
  CHECK(!f.engine->wait([] { return false; }, TimePoint::min()));
}

TEST_CASE("threads that wait, and only those, call the idle hook until it is taken away") {
  Fixture f;
  std::atomic<int> calls{0};
  const auto me = std::this_thread::get_id();
  std::atomic<bool> elsewhere{false};
  f.engine->set_idle_hook([&] {
    if (std::this_thread::get_id() != me) elsewhere = true;
    calls.fetch_add(1);
  });
  f.counter.hold(true);
  f.counter.work(1);
  f.engine->notify();
  // Nobody waits: the engine's thread drives, and calls no hook.
  std::this_thread::sleep_for(milliseconds(20));
  CHECK(calls == 0);
  // The wait depends on the hook's work.
  CHECK(f.engine->wait([&] { return calls.load() >= 3; }, in(kLimit)));
  CHECK(!elsewhere);
  f.engine->set_idle_hook(nullptr);
  const int before = calls;
  CHECK(!f.engine->wait([&] { return f.counter.reached(1); }, in(milliseconds(20))));
  CHECK(calls == before);
  f.counter.hold(false);
  f.engine->notify();
  CHECK(f.reaches(1));
}

TEST_CASE("exclusively runs while nobody polls, however busy the engine is") {
  Fixture f;
  f.counter.work(UINT64_MAX / 2);
  f.engine->notify();
  std::atomic<bool> stop{false};
  hetccl::fake::Thread waiter([&] { f.engine->wait([&] { return stop.load(); }, in(kLimit)); });
  for (int round = 0; round < 200; ++round) {
    f.engine->exclusively([&] {
      const uint64_t polls = f.counter.polls();
      CHECK(!f.counter.polled());
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      CHECK(f.counter.polls() == polls);
    });
  }
  stop.store(true);
  waiter.join();
}

TEST_CASE("what was removed is not touched again, though it has work") {
  Fixture f;
  auto removed = std::make_unique<Counter>();
  f.engine->add(*removed, {});
  removed->work(UINT64_MAX / 2);
  f.engine->notify();
  const TimePoint limit = in(kLimit);
  while (removed->polls() == 0 && steady_clock().now() < limit) std::this_thread::yield();
  CHECK(removed->polls() > 0);
  f.engine->remove(*removed);
  const uint64_t polls = removed->polls();
  f.counter.work(100);
  f.engine->notify();
  CHECK(f.reaches(100));
  CHECK(removed->polls() == polls);
}

TEST_CASE("a change that throws leaves the engine to those who drive") {
  Fixture f;
  CHECK_THROWS_AS(f.engine->exclusively([] { throw std::runtime_error("no"); }),
                  std::runtime_error);
  f.counter.work(10);
  f.engine->notify();
  CHECK(f.reaches(10));
}

TEST_CASE("a thread knows whether it drives") {
  Fixture f;
  CHECK_FALSE(Engine::drives());
  f.engine->exclusively([&] {
    CHECK(Engine::drives());
    std::thread([] { CHECK_FALSE(Engine::drives()); }).join();
  });
  CHECK_FALSE(Engine::drives());
  bool driven = false;
  CHECK(f.engine->wait([&] { return driven |= Engine::drives(); }, in(kLimit)));
  CHECK_FALSE(Engine::drives());
}

// If one of them were not watched, each ring would wait for the longest sleep, together two
// minutes.
TEST_CASE("a sleeping engine hears each transport's descriptor, however many there are") {
  constexpr int kRings = 1300;
  std::deque<Bell> bells(12);
  auto engine = std::move(Engine::create(steady_clock())).value();
  for (Bell& bell : bells) engine->use(bell);
  Bell& last = bells.back();
  std::thread ringing([&] {
    for (int ring = 0; ring < kRings; ++ring) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // it sleeps again by now
      last.ring();
      while (last.heard() <= ring) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  CHECK(engine->wait([&] { return last.heard() >= kRings; }, in(milliseconds(60'000))));
  ringing.join();
}

TEST_CASE("a sleeping engine is woken by notify at once") {
  Fixture f;
  f.counter.hold(true);
  f.counter.work(1);
  f.engine->notify();
  Duration best = kLimit;
  for (uint64_t round = 1; best >= milliseconds(40) && round <= 200; ++round) {
    f.counter.hold(true);
    std::this_thread::sleep_for(milliseconds(5));  // it sleeps by now, for up to 100 ms
    const auto start = steady_clock().now();
    f.counter.hold(false);
    f.engine->notify();
    REQUIRE(f.reaches(round));
    best = std::min<Duration>(best, steady_clock().now() - start);
    f.counter.hold(true);
    f.counter.work(1);
    f.engine->notify();
  }
  CHECK(best < milliseconds(40));
}

TEST_CASE("an engine that has nothing to do, or that nobody moves, uses no processor time") {
  Fixture f;
  CHECK(becomes_idle());
  f.counter.hold(true);
  f.counter.work(1);
  f.engine->notify();
  CHECK(becomes_idle());
}

TEST_CASE("an engine ends while it has work") {
  for (int round = 0; round < 20; ++round) {
    Counter counter;
    auto engine = std::move(Engine::create(steady_clock())).value();
    engine->add(counter, {});
    counter.hold(round % 2 == 0);
    counter.work(UINT64_MAX / 2);
    engine->notify();
    if (round % 4 < 2) std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST_CASE("what throws while it is driven is told once, and the others are driven on") {
  class Thrower final : public Counter {
   public:
    bool poll(TimePoint) override { throw std::bad_alloc(); }
  };
  std::atomic<int> told{0};
  Thrower thrower;
  thrower.work(1);
  Fixture f;
  f.engine->add(thrower, [&](const hetccl::Status& why) {
    CHECK(why.message() == "out of memory");
    ++told;
  });
  f.counter.work(1000);
  CHECK(f.engine->wait([&] { return f.counter.reached(1000); }, in(kLimit)));  // this thread drives
  f.counter.work(1000);
  f.engine->notify();
  CHECK(f.reaches(2000));  // the engine's thread drives
  CHECK(told == 1);
  f.engine->remove(thrower);
}

TEST_CASE("a driver that would wait for itself fails what is driven, with a text, and goes on") {
  class Confused final : public Counter {
   public:
    bool poll(TimePoint now) override {
      if (waits) CHECK_FALSE(engine->wait([] { return false; }, in(kLimit)));
      if (!waits) engine->exclusively([this] { ++changes; });
      return Counter::poll(now);
    }
    Engine* engine = nullptr;
    bool waits = false;
    int changes = 0;
  };
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    std::string told;
    Confused confused;
    Fixture f;
    confused.engine = f.engine.get();
    confused.waits = waits;
    f.engine->add(confused, [&](const hetccl::Status& why) {
      CHECK(why.code() == hetccl::ErrorCode::InternalError);
      CHECK(told.empty());
      told = why.message();
    });
    confused.work(10);
    CHECK(f.engine->wait([&] { return confused.reached(10); }, in(kLimit)));
    f.engine->remove(confused);
    CHECK((confused.changes > 0) == !waits);
    const char* const which = waits ? "a driver waits for no progress" : "no turn of its own";
    CHECK_MESSAGE(told.find(which) != std::string::npos, told);
    CHECK_MESSAGE(told.find("please report it") != std::string::npos, told);
  }
}

TEST_CASE("an idle hook may set another one") {
  Fixture f;
  std::atomic<int> first{0}, second{0};
  f.engine->set_idle_hook([&] {
    ++first;
    f.engine->set_idle_hook([&] { ++second; });
  });
  CHECK(f.engine->wait([&] { return second > 2; }, in(kLimit)));
  CHECK(first == 1);
  f.engine->set_idle_hook({});
}
