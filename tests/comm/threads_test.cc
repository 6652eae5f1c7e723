// Ranks as threads: a check that fails on one of them fails its test case. It ends neither the
// program nor, before their time-out, the other ranks' waits.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <stdexcept>

#include "comm/ranks.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;

}  // namespace

TEST_CASE("a check that fails on a rank's thread fails the case" * doctest::should_fail()) {
  fake::on_all_ranks(3, [](int rank) { REQUIRE(rank != 1); });
}

TEST_CASE("a check that fails on a thread fails the case that joins it" * doctest::should_fail()) {
  fake::Thread thread([] { REQUIRE(false); });
  thread.join();
}

TEST_CASE("a check that fails while a thread runs fails the case" * doctest::should_fail()) {
  std::atomic<bool> over{false};
  const fake::Thread thread([&] {
    while (!over) std::this_thread::yield();
  });
  over = true;
  REQUIRE(false);  // the thread is joined all the same
}

TEST_CASE("a rank that fails ends what others wait for, on hosts and on devices") {
  const auto fail = [] { throw std::runtime_error("it has had enough"); };
  std::array<Status, 2> told;
  Ranks ranks({"A", "B"}, {}, false);
  const auto body = [&](int rank) {
    if (rank == 1) fail();
    std::vector<float> data(1000, 1);
    told[0] = sum(*ranks[rank], data);
  };
  CHECK_THROWS_WITH_AS(on_all_ranks(ranks, body), "it has had enough", std::runtime_error);
  const auto on_device = [&](int rank, auto& device, std::shared_ptr<Communicator> made) {
    if (rank == 1) fail();
    const auto stream = device.create_stream().value();
    void* memory = device.allocate(4000).value();
    const Signature all{Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, 1000};
    (void)made->dispatch().call({all, memory, memory}, stream->native());
    const TimePoint end = steady_clock().now() + fake::kHang;
    while (made->dispatch().failure().ok() && steady_clock().now() < end) std::this_thread::yield();
    told[1] = made->dispatch().failure();
    made.reset();
    device.free(memory);
  };
  std::vector<Config> configs(2);
  configs[1].cluster = "B";
  CHECK_THROWS_WITH_AS(on_fake_devices(configs, {}, on_device), "it has had enough",
                       std::runtime_error);
  CAPTURE(told[0].message());
  CAPTURE(told[1].message());
  CHECK(told[0].message().find("a check of rank 1 has failed") != std::string::npos);
  // Here it may have left before that.
  CHECK(told[1].message().find("rank 1") != std::string::npos);
}
