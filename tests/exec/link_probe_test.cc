// A channel measured over the fake network, whose delays come from a seed.
#include "exec/link_probe.h"

#include <doctest/doctest.h>

#include <thread>

#include "fake/fake_network.h"

namespace {

using hetccl::steady_clock;
using hetccl::exec::LinkProbe;

struct End {
  End(hetccl::fake::Network& network, int self)
      : transport(network.transport(self)),
        channel(transport->connect({1, self, 1 - self}, {}, {}, 10'000).value()),
        probe(*channel, 1, self == 0, steady_clock()) {}
  void drive() {
    transport->progress();
    probe.poll(steady_clock().now());
  }
  std::unique_ptr<hetccl::transport::Transport> transport;
  std::unique_ptr<hetccl::transport::Channel> channel;
  LinkProbe probe;
};

}  // namespace

TEST_CASE("a channel is measured, and both ends know when it is done") {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    hetccl::fake::Network network(seed);
    End first(network, 0), second(network, 1);
    const auto end = steady_clock().now() + std::chrono::seconds(60);
    while (!(first.probe.done() && second.probe.done()) && steady_clock().now() < end) {
      first.drive();
      second.drive();
    }
    REQUIRE(first.probe.done());
    REQUIRE(second.probe.done());
    CHECK(first.channel->status().ok());
    CHECK(first.channel->sends_completed() == second.channel->recvs_completed());
    CHECK(first.probe.latency().count() > 0);
    CHECK(first.probe.bandwidth() > 0);
    CHECK_FALSE(first.probe.active());
  }
}

TEST_CASE("a channel that fails is done, too") {
  hetccl::fake::Network network(1);
  End first(network, 0);
  first.drive();
  CHECK_FALSE(first.probe.done());
  network.sever(0);
  for (int i = 0; i < 1000 && !first.probe.done(); ++i) first.drive();
  CHECK(first.probe.done());
  CHECK_FALSE(first.channel->status().ok());
}
