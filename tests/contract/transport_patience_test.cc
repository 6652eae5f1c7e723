// Connections whose other end stays away, maybe for as long as the process lives.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/config.h"
#include "base/log.h"
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

// Of this process in a while in which nobody comes, once all have begun to wait.
int64_t idle_switches() {
  std::this_thread::sleep_for(milliseconds(200));
  const int64_t before = switches();
  std::this_thread::sleep_for(milliseconds(300));
  return switches() - before;
}

}  // namespace

TEST_CASE("who waits for the other end of a connection sleeps, and a cancel wakes it") {
  for (const bool shm : {true, false}) {
    CAPTURE(shm);
    const auto transport = std::move(make(shm)).value(), others = std::move(make(shm)).value();
    REQUIRE(transport->listen().ok());
    const Address address = others->listen().value();
    const auto cancel = std::move(Cancel::create()).value();
    const std::vector<uint8_t> secret(32, 7);
    WaitLimit limit(kPatienceMs, cancel.get());
    limit.patient = true;
    std::atomic<int> ended{0};
    std::vector<std::thread> threads;
    for (int peer = 0; peer < kPeers; ++peer) {
      if (peer == kSelf) continue;
      threads.emplace_back([&, peer] {
        const auto made = transport->connect({5, kSelf, peer}, address, secret, limit);
        CHECK(made.status().code() == Code::Aborted);
        ++ended;
      });
    }
    // Each millisecond of each thread would be thousands.
    CHECK(idle_switches() < 500);
    CHECK(ended == 0);
    cancel->set(error(Code::Aborted, "the test gives up"));
    for (std::thread& thread : threads) thread.join();
    CHECK(ended == kPeers - 1);
  }
}

}  // namespace hetccl::transport
