// A channel measured over the fake network, whose delays come from a seed.
#include "exec/link_probe.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "fake/fake_network.h"
#include "fake/patience.h"

namespace {

using hetccl::steady_clock;
using hetccl::exec::LinkProbe;
using hetccl::transport::Parcel;

struct Stopped : hetccl::Clock {
  [[nodiscard]] hetccl::TimePoint now() const override { return {}; }
};
struct Racing : hetccl::Clock {
  [[nodiscard]] hetccl::TimePoint now() const override {
    return hetccl::TimePoint(std::chrono::seconds(++seconds));
  }
  mutable int seconds = 0;
};

/// Passes everything on, and remembers where messages are received.
class Watched : public hetccl::transport::Channel {
 public:
  explicit Watched(std::unique_ptr<Channel> real) : real_(std::move(real)) {}
  void post_send(const Parcel& transfer) override { real_->post_send(transfer); }
  void post_recv(const Parcel& transfer) override {
    receives.push_back(transfer);
    real_->post_recv(transfer);
  }
  [[nodiscard]] uint64_t sends_completed() const override { return real_->sends_completed(); }
  [[nodiscard]] uint64_t recvs_completed() const override { return real_->recvs_completed(); }
  [[nodiscard]] const hetccl::Status& status() const override { return real_->status(); }
  void close() override { real_->close(); }

  std::vector<Parcel> receives;

 private:
  std::unique_ptr<Channel> real_;
};

struct End {
  End(hetccl::fake::Network& network, int self, const hetccl::Clock& clock = steady_clock())
      : transport(network.transport(self)),
        channel(transport->connect({1, self, 1 - self}, {}, {}, hetccl::fake::kHangMs).value()),
        probe(channel, 1, self == 0, clock) {}
  void drive() {
    transport->progress();
    probe.poll(steady_clock().now());
  }
  std::unique_ptr<hetccl::transport::Transport> transport;
  Watched channel;
  LinkProbe probe;
};

void finish(End& first, End& second) {
  const auto end = steady_clock().now() + hetccl::fake::kHang;
  while (!(first.probe.done() && second.probe.done()) && steady_clock().now() < end) {
    first.drive();
    second.drive();
  }
  REQUIRE(first.probe.done());
  REQUIRE(second.probe.done());
}

}  // namespace

TEST_CASE("a channel is measured, and both ends know when it is done") {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    hetccl::fake::Network network(seed);
    End first(network, 0), second(network, 1);
    finish(first, second);
    CHECK(first.channel.status().ok());
    CHECK(first.channel.sends_completed() == second.channel.recvs_completed());
    CHECK(first.probe.latency().count() > 0);
    CHECK(first.probe.bandwidth() > 0);
    CHECK_FALSE(first.probe.active());
  }
}

TEST_CASE("a channel that seems fast to both ends is measured with more") {
  for (const bool both : {false, true}) {
    CAPTURE(both);
    hetccl::fake::Network network(1);
    // Nobody's time passes, or one end's does.
    const Stopped stopped;
    const Racing racing;
    End first(network, 0, stopped);
    End second(network, 1, both ? static_cast<const hetccl::Clock&>(stopped) : racing);
    finish(first, second);
    const uint64_t short_ones = 20 + 16 + 1;
    CHECK(first.channel.sends_completed() == (both ? short_ones + 6 : short_ones));
    CHECK(second.channel.sends_completed() == first.channel.sends_completed());
  }
}

TEST_CASE("messages that may arrive together are received apart") {
  hetccl::fake::Network network(1);
  const Stopped stopped;
  End first(network, 0, stopped), second(network, 1, stopped);
  finish(first, second);
  const auto begins_before = [](const Parcel& a, const Parcel& b) { return a.data < b.data; };
  auto& receives = first.channel.receives;
  // The pings are answered one by one, and the last may meet what comes behind it.
  receives.erase(receives.begin(), receives.begin() + 19);
  std::sort(receives.begin(), receives.end(), begins_before);
  for (size_t i = 1; i < receives.size(); ++i) {
    const Parcel& before = receives[i - 1];
    CHECK(static_cast<std::byte*>(before.data) + before.bytes <= receives[i].data);
  }
  CHECK(receives.size() == 1 + 16 + 1 + 6);
}

TEST_CASE("a channel that fails is done, too") {
  hetccl::fake::Network network(1);
  End first(network, 0);
  first.drive();
  CHECK_FALSE(first.probe.done());
  network.sever(0);
  for (int i = 0; i < 1000 && !first.probe.done(); ++i) first.drive();
  CHECK(first.probe.done());
  CHECK_FALSE(first.channel.status().ok());
}
