// Connections whose other end stays away, maybe for as long as the process lives.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/config.h"
#include "base/log.h"
#include "fake/patience.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace hetccl::transport {
namespace {

using std::chrono::milliseconds;

constexpr int kPeers = 16, kSelf = kPeers / 2;  // half of them offer, half are awaited
constexpr int64_t kPatienceMs = 100'000'000;

Result<std::unique_ptr<Transport>> make(bool shm) {
  if (shm) return make_shm_transport(nullptr, Log{LogLevel::Error, -1});
  Config config;
  config.socket_ifname = "=lo";
  return make_tcp_transport(config, Log{LogLevel::Error, -1});
}

int64_t switches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw;
}

// Returns the context switches of this process while no peer connects, once all ranks wait.
int64_t idle_switches() {
  std::this_thread::sleep_for(milliseconds(200));
  const int64_t before = switches();
  std::this_thread::sleep_for(milliseconds(300));
  return switches() - before;
}

size_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

class SharedClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return TimePoint(Duration(time_.load())); }
  void pass(Duration time) { time_ += time.count(); }

 private:
  std::atomic<Duration::rep> time_{std::chrono::nanoseconds(std::chrono::hours(1)).count()};
};

// A rank that connects to others, which never connect.
struct Waiting {
  explicit Waiting(bool shm)
      : transport(std::move(make(shm)).value()), others(std::move(make(shm)).value()) {
    REQUIRE(transport->listen().ok());
    address = others->listen().value();
  }
  [[nodiscard]] WaitLimit patient() const {
    WaitLimit limit(kPatienceMs, cancel.get());
    limit.patient = true;
    return limit;
  }
  void connect(int peer, const WaitLimit& limit) {
    transport->connect_later({5, kSelf, peer}, address, std::vector<uint8_t>(32, 7), limit,
                             [this](auto made) {
                               last = made.status().code();
                               ++ended;
                             });
  }
  bool await(int n) {
    for (const TimePoint end = steady_clock().now() + fake::kHang;
         ended < n && steady_clock().now() < end;)
      std::this_thread::sleep_for(milliseconds(1));
    return ended == n;
  }
  const std::unique_ptr<Cancel> cancel = std::move(Cancel::create()).value();
  std::atomic<int> ended{0};
  std::atomic<ErrorCode> last{ErrorCode::Ok};
  Address address;
  const std::unique_ptr<Transport> transport, others;  // the first use all of the above
};

}  // namespace

TEST_CASE("who waits for the other end of a connection sleeps, and a cancel wakes it") {
  for (const bool shm : {true, false}) {
    CAPTURE(shm);
    Waiting waiting(shm);
    const size_t threads = threads_of_process();
    for (int peer = 0; peer < kPeers; ++peer) {
      if (peer != kSelf) waiting.connect(peer, waiting.patient());
    }
    // Each millisecond of each connection would be thousands.
    CHECK(idle_switches() < 500);
    CHECK(threads_of_process() <= threads + 2);  // one for all of them; a sanitizer has one, too
    CHECK(waiting.ended == 0);
    waiting.cancel->set(error(ErrorCode::Aborted, "the test gives up"));
    CHECK(waiting.await(kPeers - 1));
    CHECK(waiting.last.load() == ErrorCode::Aborted);
  }
}

TEST_CASE("a connection whose other end stays away ends by the clock of its limit") {
  for (const bool shm : {true, false}) {
    CAPTURE(shm);
    Waiting waiting(shm);
    SharedClock clock;
    for (const int peer : {0, kPeers - 1}) {  // one that is awaited, and one that is dialled
      WaitLimit limit = waiting.patient();
      limit.timeout_ms = 3'600'000;
      limit.clock = &clock;
      waiting.connect(peer, limit);
    }
    std::this_thread::sleep_for(milliseconds(50));
    CHECK(waiting.ended == 0);
    clock.pass(std::chrono::hours(2));
    waiting.connect(1, waiting.patient());  // which has the transport look at all
    CHECK(waiting.await(2));
    CHECK(waiting.last.load() == ErrorCode::Timeout);
    waiting.cancel->set(error(ErrorCode::Aborted, "the test gives up"));
    CHECK(waiting.await(3));
  }
}

}  // namespace hetccl::transport
