// transport/verbs over a fake of libibverbs: which ports it uses, and what faults become.
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <random>
#include <vector>

#include "fake/fake_verbs.h"
#include "fake/patience.h"
#include "fake/thread.h"
#include "transport/verbs/frame.h"
#include "transport/verbs/verbs_transport.h"

namespace hetccl::transport {
namespace {

using Bytes = std::vector<uint8_t>;

Result<std::unique_ptr<Transport>> make(const Config& config) {
  Config local = config;
  local.socket_ifname = "=lo";
  return make_verbs_transport(fake::verbs_api(), local, Log{LogLevel::Error, -1});
}

std::string why_not(const Config& config) {
  const auto made = make(config);
  return made.ok() ? "" : made.status().message();
}

struct Pair {
  explicit Pair(const Config& config = {}) {
    for (auto& transport : transports) {
      auto made = make(config);
      REQUIRE_MESSAGE(made.ok(), made.status().message());
      transport = std::move(made).value();
    }
    Address addresses[2];
    for (int i = 0; i < 2; ++i) addresses[i] = transports[i]->listen().value();
    const auto join = [&](int self) {
      auto made = transports[self]->connect({77, self, 1 - self}, addresses[1 - self], Bytes(32, 1),
                                            fake::kHangMs);
      CHECK_MESSAGE(made.ok(), made.status().message());
      if (made.ok()) channels[self] = std::move(made).value();
    };
    fake::Thread other([&] { join(1); });
    join(0);
    other.join();
    REQUIRE(channels[0]);
    REQUIRE(channels[1]);
  }
  void until(const std::function<bool()>& done) {
    for (const auto end = steady_clock().now() + fake::kHang; !done();) {
      for (auto& transport : transports) transport->progress();
      REQUIRE(steady_clock().now() < end);
    }
  }
  std::unique_ptr<Transport> transports[2];
  std::unique_ptr<Channel> channels[2];
};

Parcel parcel(Bytes& data, uint64_t sequence) {
  return {data.data(), data.size(), {77, sequence, 0, 0, {}}};
}

TEST_CASE("the GID is RoCE v2 over IPv4 where there is one, and reasons are told where none fits") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  Config config;
  CHECK(make(config).value()->describe() ==
        std::vector<std::string>{"fake0:1: RoCE v2, GID 2 (10.0.0.1), MTU 4096"});
  config.rdma_gid_index = 1;
  CHECK(make(config).value()->describe() ==
        std::vector<std::string>{"fake0:1: RoCE v1, GID 1 (10.0.0.1), MTU 4096"});
  config.rdma_gid_index = 9;
  CHECK(why_not(config).find("HETCCL_RDMA_GID_INDEX") != std::string::npos);
  config = {};
  config.rdma_pkey = 0x8002;
  CHECK(why_not(config) == "");
  config.rdma_pkey = 0x8003;
  CHECK(why_not(config).find("partition 0x8003") != std::string::npos);
  config = {};
  config.rdma_devices = "^fake";
  CHECK(why_not(config).find("HETCCL_RDMA_DEVICES=^fake") != std::string::npos);
  fabric.devices = {"mlx5_1", "mlx5_0", "other"};
  config.rdma_devices = "mlx5";
  CHECK(make(config).value()->describe().size() == 2);
  config.rdma_devices = "=mlx5_1";
  CHECK(make(config).value()->describe().front().starts_with("mlx5_1:1: "));
  fabric.has_gid = false;
  CHECK(why_not({}).find("no GID") != std::string::npos);
  fabric.port_state = verbs::abi::kPortDown;
  CHECK(why_not({}).find("not active (down)") != std::string::npos);
  fabric.devices.clear();
  CHECK(why_not({}) == "this host has no RDMA device");
}

TEST_CASE("a failed completion becomes one error that names peer, port and the device's text") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  Pair pair;
  fabric.fails_from = 3;
  std::vector<Bytes> sent(6, Bytes(100)), received = sent;
  for (uint64_t i = 0; i < sent.size(); ++i) {
    pair.channels[0]->post_send(parcel(sent[i], i));
    pair.channels[1]->post_recv(parcel(received[i], i));
  }
  pair.until([&] { return !pair.channels[0]->status().ok(); });
  const Status status = pair.channels[0]->status();
  CHECK(status.code() == ErrorCode::RemoteError);
  for (const char* part :
       {"rank 1", "fake0:1", "transport retry counter exceeded", "0x81", "HETCCL_TRANSPORT=tcp"})
    CHECK_MESSAGE(status.message().find(part) != std::string::npos, status.message());
  const uint64_t completed = pair.channels[0]->sends_completed();
  for (int i = 0; i < 50; ++i) pair.transports[0]->progress();
  CHECK(pair.channels[0]->status().message() == status.message());
  CHECK(pair.channels[0]->sends_completed() == completed);
  CHECK(completed == 2);
}

// Credits hold the sender back before the receiver has no receive left, and queues before they are
// full; where no memory can be locked, chunks wait for others.
TEST_CASE("random traffic meets a posted receive each, overflows nothing, and leaves nothing") {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
    fabric.late = seed % 4 * 7;
    fabric.fail_registrations = seed % 2 == 0 ? 20 : 0;
    std::mt19937 random(seed);
    {
      Pair pair;
      std::vector<Bytes> sent[2], received[2];
      for (size_t i = 0; i < 150; ++i) {
        for (int r = 0; r < 2; ++r) {
          const size_t bytes = random() % 10 == 0 ? random() % (3U << 20) : random() % 12'000;
          sent[r].emplace_back(bytes, static_cast<uint8_t>(random()));
          received[r].emplace_back(bytes);
        }
      }
      size_t next[4] = {};
      pair.until([&] {
        const size_t what = random() % 4, rank = what % 2;
        if (const size_t i = next[what]; i < sent[0].size()) {
          ++next[what];
          if (what < 2)
            pair.channels[rank]->post_send(parcel(sent[rank][i], i));
          else
            pair.channels[rank]->post_recv(parcel(received[1 - rank][i], i));
        }
        bool done = true;
        for (const auto& channel : pair.channels) {
          REQUIRE_MESSAGE(channel->status().ok(), channel->status().message());
          done = done && channel->sends_completed() == sent[0].size() &&
                 channel->recvs_completed() == sent[0].size();
        }
        return done;
      });
      CHECK(received[0] == sent[0]);
      CHECK(received[1] == sent[1]);
    }
    CHECK(fabric.fail_registrations == 0);
    CHECK(fabric.not_ready == 0);
    CHECK(fabric.overflows == 0);
    CHECK(fabric.violations == 0);
    CHECK(fabric.regions == 0);
    CHECK(fabric.queue_pairs == 0);
  }
}

}  // namespace
}  // namespace hetccl::transport
