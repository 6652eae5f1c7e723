// transport/verbs over a fake of libibverbs: which ports it uses, and what faults become.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <random>
#include <set>
#include <vector>

#include "fake/captured_stderr.h"
#include "fake/fake_verbs.h"
#include "fake/patience.h"
#include "fake/random_traffic.h"
#include "fake/sysfs.h"
#include "fake/thread.h"
#include "transport/verbs/frame.h"
#include "transport/verbs/locked_memory.h"
#include "transport/verbs/verbs_transport.h"

namespace hetccl::transport {
namespace {

using fake::Bytes;
using fake::parcel;

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
  explicit Pair(const Config& config = {}, int first = 0) : Pair(config, config, first) {}
  // Makes the channels of ranks `first` and `first + 1`.
  Pair(const Config& low, const Config& high, int first = 0, const std::string& bus = "") {
    for (int i = 0; i < 2; ++i) {
      auto made = make(i == 0 ? low : high);
      REQUIRE_MESSAGE(made.ok(), made.status().message());
      transports[i] = std::move(made).value();
    }
    Address addresses[2];
    for (int i = 0; i < 2; ++i) addresses[i] = transports[i]->listen().value();
    const auto join = [&](int self) {
      PeerId id{77, first + self, first + 1 - self};
      id.bus = bus;
      auto made = transports[self]->connect(id, addresses[1 - self], Bytes(32, 1), fake::kHangMs);
      CHECK_MESSAGE(made.ok(), made.status().message());
      if (made.ok()) channels[self] = std::move(made).value();
    };
    fake::Thread other([&] { join(1); });
    join(0);
    other.join();
    REQUIRE(channels[0]);
    REQUIRE(channels[1]);
    for (int i = 0; i < 400; ++i)  // until both send
      for (auto& transport : transports) transport->progress();
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

TEST_CASE("the GID is RoCE v2 over IPv4 where there is one, and reasons are told where none fits") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  Config config;
  CHECK(make(config).value()->describe() ==
        std::vector<std::string>{
            "fake0:1: RoCE v2, GID 2 (10.0.0.1, the first of v2 and IPv4), MTU 4096, 100 Gbit/s"});
  config.rdma_gid_index = 1;
  CHECK(make(config).value()->describe() ==
        std::vector<std::string>{
            "fake0:1: RoCE v1, GID 1 (10.0.0.1, HETCCL_RDMA_GID_INDEX), MTU 4096, 100 Gbit/s"});
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
  fabric.gids = 0;
  CHECK(why_not({}).find("no GID of an address") != std::string::npos);
  fabric.port_state = verbs::abi::kPortDown;
  CHECK(why_not({}).find("not active (down, or no cable)") != std::string::npos);
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

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("settings that exclude every port are errors, ports that nobody can use a warning") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  const auto code = [](const Config& config) { return make(config).status().code(); };
  Config config;
  config.rdma_devices = "mlx5";
  CHECK(code(config) == ErrorCode::InvalidArgument);
  CHECK(has(why_not(config), "HETCCL_RDMA_DEVICES=mlx5 admits none"));
  CHECK(has(why_not(config), "(fake0)"));
  config = {};
  config.rdma_pkey = 0x8003;
  CHECK(code(config) == ErrorCode::InvalidArgument);
  config = {};
  config.rdma_gid_index = 9;
  CHECK(code(config) == ErrorCode::InvalidArgument);
  fabric.port_state = verbs::abi::kPortDown;
  CHECK(code({}) == ErrorCode::SystemError);
  fabric.devices.clear();
  CHECK(code(config) == ErrorCode::Unsupported);
}

TEST_CASE("a link-local GID is used where a setting names it, or the port is InfiniBand") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  fabric.gids = 1;
  CHECK(has(why_not({}), "HETCCL_RDMA_GID_INDEX"));
  Config config;
  config.rdma_gid_index = 0;
  CHECK(has(make(config).value()->describe().front(), "GID 0 (fe80::"));
  fabric.gids = 2;
  CHECK(has(make({}).value()->describe().front(), "GID 1 (10.0.0.1, the first of IPv4, none is"));
  fabric.gids = 1;
  fabric.link = verbs::abi::kLinkInfiniBand;
  CHECK(has(make({}).value()->describe().front(), "InfiniBand, GID 0 (LID 8, the port's own)"));
}

TEST_CASE("ports in the order of their numbers; those too many are shown as not used") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  fabric.devices = {"mlx5_10", "mlx5_2", "mlx5_1", "mlx5_9", "mlx5_3"};
  fabric.ports = 2;
  fabric.adjust = [](const std::string& port, verbs::abi::PortAttr& attr) {
    if (port == "mlx5_1:2" || port == "mlx5_2:1") attr.active_speed = 1;
  };
  const auto lines = make({}).value()->describe();
  REQUIRE(lines.size() == 10);
  CHECK(lines[0].starts_with("mlx5_1:1: RoCE v2"));
  CHECK(lines[1].starts_with("mlx5_1:2 is not used: a rank uses 8 ports"));
  CHECK(lines[2].starts_with("mlx5_2:1 is not used: "));
  CHECK(lines[3].starts_with("mlx5_2:2: "));
  CHECK(lines[9].starts_with("mlx5_10:2: "));
}

TEST_CASE("forks are prepared for once, unless the kernel does, and a failure is a warning") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  const auto run = [] {
    fake::CapturedStderr output;
    Config config;
    config.socket_ifname = "=lo";
    REQUIRE(make_verbs_transport(fake::verbs_api(), config, Log{LogLevel::Warn, -1}).ok());
    return output.text();
  };
  CHECK(run() == "");
  CHECK(fabric.fork_inits == 1);
  fabric.fork_init_fails = true;
  CHECK(has(run(), "RDMA is not safe if this process forks"));
  for (const int support : {verbs::abi::kForkEnabled, verbs::abi::kForkUnneeded}) {
    fabric.fork_support = support;
    CHECK(run() == "");
  }
  CHECK(fabric.fork_inits == 2);
}

// The limit of locked memory, for a while.
struct LockLimit {
  explicit LockLimit(size_t bytes) {
    REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before) == 0);
    rlimit now = before;
    now.rlim_cur = std::min<rlim_t>(bytes, before.rlim_max);
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &now) == 0);
    fake::verbs_fabric().lockable = now.rlim_cur;
    enough = now.rlim_cur == bytes;
    if (!enough) MESSAGE("SKIPPED: the hard limit of locked memory is too small");
  }
  ~LockLimit() { ::setrlimit(RLIMIT_MEMLOCK, &before); }
  rlimit before{};
  bool enough = false;
};

// Messages both ways; each end has granted memory before it can write.
void exchange(Pair& pair, const std::function<bool()>& done) {
  static Bytes sent[2], received[2];
  for (int r = 0; r < 2; ++r) {
    sent[r].assign(5 << 20, static_cast<uint8_t>(r + 1));
    received[r].assign(sent[r].size(), 0);
  }
  pair.channels[1]->post_send(parcel(sent[1], 0));
  pair.until([&] { return pair.channels[0]->incoming().has_value(); });
  pair.channels[1]->post_recv(parcel(received[0], 0));
  pair.channels[0]->post_send(parcel(sent[0], 0));
  const int64_t regions = fake::verbs_fabric().regions;
  for (const auto end = steady_clock().now() + fake::kHang;
       fake::verbs_fabric().regions == regions && steady_clock().now() < end;)
    pair.transports[1]->progress();
  pair.channels[0]->post_recv(parcel(received[1], 0));
  pair.until([&] {
    for (const auto& channel : pair.channels)
      if (!channel->status().ok()) return true;
    return done();
  });
  if (!pair.channels[0]->status().ok() || !pair.channels[1]->status().ok()) return;
  CHECK(received[0] == sent[0]);
  CHECK(received[1] == sent[1]);
}

void exchange(Pair& pair) {
  exchange(pair, [&] {
    return pair.channels[0]->recvs_completed() + pair.channels[1]->recvs_completed() == 2;
  });
  for (const auto& channel : pair.channels)
    CHECK_MESSAGE(channel->status().ok(), channel->status().message());
}

TEST_CASE("RDMA is left to who names it where memory for a usual number of channels is missing") {
  fake::reset_verbs_fabric();
  const LockLimit limit(8 << 20);  // a usual default
  CHECK(has(why_not({}), "16 RDMA connections need"));
  CHECK(has(why_not({}), "ulimit -l"));
  Config config;
  config.transport = "verbs";
  if (limit.enough) CHECK(why_not(config) == "");
  fake::verbs_fabric().lockable = 64 << 10;
  const LockLimit less(64 << 10);
  CHECK(has(why_not(config), "1 RDMA connections need"));
}

TEST_CASE("a process that no limit holds needs none raised") {
  fake::reset_verbs_fabric();
  const LockLimit limit(64 << 10);
  fake::verbs_fabric().lockable = SIZE_MAX;
  CHECK(why_not({}) == "");
}

TEST_CASE("two ends that grant all the memory they have do not wait for each other") {
  for (const uint32_t late : {0U, 9U}) {
    fake::reset_verbs_fabric();
    fake::verbs_fabric().late = late;
    const LockLimit limit(verbs::kChannelLocks + 2 * verbs::kChunkLocks);
    if (!limit.enough) return;
    Config config;
    config.transport = "verbs";
    Pair pair(config);
    exchange(pair);
  }
}

TEST_CASE("where others have locked what a write needs, it fails with the limit's name") {
  fake::reset_verbs_fabric();
  Config config;
  config.transport = "verbs";
  Pair pair(config);
  const size_t slots = (verbs::kReceives + verbs::kSendSlots) * verbs::kSlotBytes;
  fake::verbs_fabric().lockable = slots + 2 * verbs::kChunkLocks;
  exchange(pair,
           [&] { return !pair.channels[0]->status().ok() || !pair.channels[1]->status().ok(); });
  const Status& first = pair.channels[0]->status();
  CHECK(has(first.ok() ? pair.channels[1]->status().message() : first.message(), "ulimit -l"));
}

TEST_CASE("an event that a device, queue pair or completion queue has failed ends its channels") {
  for (const int type :
       {verbs::abi::kEventDeviceFatal, verbs::abi::kEventCqError, verbs::abi::kEventQpFatal,
        verbs::abi::kEventQpRequestError, verbs::abi::kEventQpAccessError}) {
    CAPTURE(type);
    fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
    {
      Pair pair;
      for (auto& transport : pair.transports) {
        transport->arm(true);
        while (transport->progress()) continue;
      }
      fake::raise_verbs_event(10);  // a port's event, which ends no channel
      for (int i = 0; i < 200; ++i) pair.transports[0]->progress();
      CHECK(pair.channels[0]->status().ok());
      fake::raise_verbs_event(type);
      pollfd entry{pair.transports[0]->poll_fd(), POLLIN, 0};
      CHECK(::poll(&entry, 1, 0) == 1);
      pair.until([&] { return !pair.channels[0]->status().ok(); });
      const char* text =
          type == verbs::abi::kEventDeviceFatal ? "catastrophic error" : "an event of a queue";
      CHECK(has(pair.channels[0]->status().message(), text));
      CHECK(has(pair.channels[0]->status().message(), "rank 1"));
    }
    CHECK(fabric.violations == 0);
  }
}

// Ranks 0 and 1 use the first of several pairs, 1 and 2 the second.
TEST_CASE("queue pairs connect over InfiniBand, over second ports, and over other devices") {
  for (const uint8_t link : {verbs::abi::kLinkEthernet, verbs::abi::kLinkInfiniBand}) {
    for (const bool devices : {false, true}) {
      CAPTURE(link);
      CAPTURE(devices);
      fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
      fabric.link = link;
      if (devices) fabric.devices = {"a", "b"};
      fabric.ports = devices ? 1 : 2;
      for (const int first : {0, 1}) {
        Pair pair({}, first);
        exchange(pair);
      }
      CHECK(fabric.violations == 0);
    }
  }
}

// Ranks of a host sit where their cores are. The far device comes first.
TEST_CASE("a channel goes by the device that is near to its rank") {
  const fake::Sysfs sys;
  const std::string cores = net::locate_rank("").cores;
  constexpr const char* kFar = "pci0000:00/0000:00:01.0";
  constexpr const char* kNear = "pci0000:80/0000:80:01.0";
  sys.add_device(kFar, 0, "8000");
  sys.add_device(kNear, 1, cores);
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  fabric.devices = {"far", "near"};
  fabric.folders = {sys.add_rdma("far", kFar), sys.add_rdma("near", kNear)};
  for (const int first : {0, 1}) {
    Pair pair({}, first);
    exchange(pair);
  }
  CHECK(fabric.carried["far"] == 0);
  CHECK(fabric.carried["near"] > 4 * (5 << 20));
  CHECK(fabric.violations == 0);
  Pair elsewhere({}, {}, 0, "ffff:1f:1f.7");  // a device on no bus, as far from both
  exchange(elsewhere);
  CHECK(fabric.carried["far"] > 2 * (5 << 20));
}

// A rank that spins asks for no event: each would be an interrupt.
TEST_CASE("a message that is waited for without sleep costs posts and polls alone") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  Pair pair;
  const uint64_t arms = fabric.arms, events = fabric.events, posts = fabric.posts;
  constexpr uint64_t kMessages = 400;
  Bytes ping(8), pong(8);
  for (uint64_t i = 0; i < kMessages; ++i) {
    for (int r = 0; r < 2; ++r) {
      pair.channels[1 - r]->post_recv(parcel(pong, i));
      pair.channels[r]->post_send(parcel(ping, i));
      pair.until([&] { return pair.channels[1 - r]->recvs_completed() == i + 1; });
    }
  }
  CHECK(fabric.arms == arms);
  CHECK(fabric.events <= events + 2);  // asked for when the channels were made
  // A send and a receive each; credits travel with the other end's messages.
  CHECK(fabric.posts - posts <= 4 * kMessages + 8);
  for (auto& transport : pair.transports) {
    for (int i = 0; i < 200; ++i) transport->progress();  // takes the event
    transport->arm(true);
    transport->arm(true);
  }
  CHECK(fabric.arms <= arms + 2);
}

// At both ends: a header, and for each of eight chunks a grant and a write, each with the receive
// that it meets; credits by the way.
TEST_CASE("4 MiB cost 34 posts and a few, and no registration where memory is known") {
  for (const bool known : {false, true}) {
    CAPTURE(known);
    fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
    Pair pair;
    Bytes sent(4 << 20, 7), received(sent.size());
    std::vector<std::unique_ptr<Registration>> registrations;
    for (int r = 0; r < 2 && known; ++r) {
      Bytes& memory = r == 0 ? sent : received;
      auto made = pair.transports[r]->register_memory(
          {.data = reinterpret_cast<std::byte*>(memory.data()), .bytes = memory.size()});
      REQUIRE_MESSAGE(made.ok(), made.status().message());
      registrations.push_back(std::move(made).value());
    }
    const uint64_t posts = fabric.posts, registered = fabric.registered;
    Parcel from = parcel(sent, 0), to = parcel(received, 0);
    from.registered = to.registered = known;
    pair.channels[1]->post_recv(to);
    pair.channels[0]->post_send(from);
    pair.until([&] {
      return pair.channels[1]->recvs_completed() == 1 && pair.channels[0]->sends_completed() == 1;
    });
    CHECK(received == sent);
    CHECK(fabric.posts - posts >= 34);
    CHECK(fabric.posts - posts <= 38);
    CHECK(fabric.registered - registered == (known ? 0 : 16));
  }
}

TEST_CASE("a queue pair that the device does not connect is an error with peer, port and remedy") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  fabric.connect_failure = ETIMEDOUT;
  Pair pair;
  pair.until([&] { return !pair.channels[0]->status().ok(); });
  const std::string& message = pair.channels[0]->status().message();
  for (const char* part : {"rank 1", "fake0:1", "HETCCL_TRANSPORT=tcp", "timed out"})
    CHECK_MESSAGE(has(message, part), message);
}

Config with_queue_pairs(int64_t n) {
  Config config;
  config.rdma_queue_pairs = n;
  return config;
}

TEST_CASE("chunks go by several queue pairs, and a message is complete once all have landed") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  Pair pair(with_queue_pairs(4));
  std::set<uint32_t> writers;
  uint32_t held = 0;
  bool holds = true;
  fabric.holds = [&](uint32_t number, int opcode) {
    if (opcode != verbs::abi::kRdmaWriteWithImm) return false;
    writers.insert(number);
    if (held == 0 && writers.size() == 2) held = number;
    return holds && number == held;
  };
  constexpr size_t kChunks = 8;  // twice as many as are under way
  Bytes sent(kChunks * verbs::kChunkBytes, 7), received(sent.size());
  pair.channels[1]->post_recv(parcel(received, 0));
  pair.channels[0]->post_send(parcel(sent, 0));
  const auto landed = [&] {
    size_t n = 0;
    for (size_t i = 0; i < kChunks; ++i) n += received[(i + 1) * verbs::kChunkBytes - 1] == 7;
    return n;
  };
  pair.until([&] { return landed() == kChunks - 1; });
  for (int i = 0; i < 50; ++i) pair.transports[1]->progress();
  CHECK(writers.size() == 4);
  CHECK(pair.channels[1]->recvs_completed() == 0);
  CHECK(pair.channels[0]->sends_completed() == 0);
  holds = false;
  pair.until([&] {
    return pair.channels[1]->recvs_completed() == 1 && pair.channels[0]->sends_completed() == 1;
  });
  CHECK(received == sent);
  CHECK(fabric.violations + fabric.not_ready + fabric.overflows == 0);
}

TEST_CASE("ranks that would use different numbers of queue pairs use the smaller") {
  for (const auto& [low, high] : {std::pair{4, 2}, {1, 3}}) {
    fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
    Pair pair(with_queue_pairs(low), with_queue_pairs(high));
    exchange(pair);
    CHECK(fabric.queue_pairs == 2 * std::min(low, high));
  }
}

TEST_CASE("a failure of any queue pair is the channel's") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  Pair pair(with_queue_pairs(4));
  std::set<uint32_t> writers;
  fabric.fails = [&](uint32_t number, int opcode) {
    if (opcode == verbs::abi::kRdmaWriteWithImm) writers.insert(number);
    return writers.size() == 3 && writers.contains(number);
  };
  exchange(pair, [] { return false; });
  const Status& first = pair.channels[0]->status();
  const std::string& told = (first.ok() ? pair.channels[1]->status() : first).message();
  CHECK_MESSAGE(has(told, "fake0:1 failed: transport retry counter exceeded"), told);
}

// Credits hold the sender back before the receiver has no receive left, and queues before they are
// full; where no memory can be locked, chunks wait for others.
TEST_CASE("random traffic meets a posted receive each, overflows nothing, and leaves nothing") {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    fake::VerbsFabric& fabric = fake::reset_verbs_fabric(seed);
    fabric.late = seed % 4 * 7;
    fabric.inline_bytes = seed % 3 * 110;
    fabric.fail_registrations = seed % 2 == 0 ? 20 : 0;
    std::mt19937 random(seed);
    {
      Pair pair(with_queue_pairs(1 + seed / 2 % 4));
      fake::exchange_randomly(pair, 150, random, [](std::mt19937& from) -> size_t {
        return from() % 10 == 0 ? from() % (3U << 20) : from() % 12'000;
      });
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
