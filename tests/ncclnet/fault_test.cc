// transport/ncclnet by a plug-in with faults: what these become, and that the plug-in is called as
// its interface says.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "base/fd.h"
#include "fake/random_traffic.h"
#include "ncclnet/check_clean.h"
#include "ncclnet/pair.h"
#include "transport/ncclnet/frame.h"
#include "transport/ncclnet/link.h"

namespace hetccl::transport::ncclnet {
namespace {

bool has(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

// Random messages both ways, posted in random order. The longest have more chunks, of so many
// bytes, than go at once.
void exchange(Pair& pair, uint32_t seed, size_t chunk_bytes) {
  const size_t longest = 12 * chunk_bytes;
  std::mt19937 random(seed);
  fake::exchange_randomly(pair, 120, random, [&](std::mt19937& from) -> size_t {
    return from() % 8 == 0 ? from() % longest : from() % 20'000;
  });
}

}  // namespace

TEST_CASE("random traffic by a slow plug-in that takes requests seldom leaves nothing behind") {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const int version = 8 + static_cast<int>(seed % 5);
    fake::NetPlugin& plugin = fake::reset_net_plugin(version);
    plugin.works_one_in = 1 + seed % 4;
    plugin.late = seed % 3 * 7;
    const bool cut =
        seed % 2 == 0;  // the device takes less than a chunk, which version 8 cannot say
    plugin.max_bytes = cut ? 5000 : 1 << 30;
    {
      Pair pair(version);
      exchange(pair, seed, cut ? plugin.max_bytes : kMostChunk);
    }
    fake::check_clean(plugin);
    const auto window = static_cast<int64_t>(Link::kWindow);
    CHECK(plugin.most_requests > window);
    CHECK(plugin.most_requests <= 4 * window);  // two ends, both ways
  }
}

TEST_CASE("ranks whose plug-ins have different versions of the interface meet") {
  fake::NetPlugin& oldest = fake::reset_net_plugin(8);
  fake::NetPlugin& newest = fake::reset_net_plugin(12);
  newest.max_bytes = 10'000;  // both ends take the smaller of the two
  {
    Pair pair(8, 12);
    exchange(pair, 5, newest.max_bytes);
  }
  fake::check_clean(oldest);
  fake::check_clean(newest);
}

TEST_CASE("short messages make no connection by the plug-in, and an idle one has no request") {
  fake::NetPlugin& plugin = fake::reset_net_plugin(11);
  Pair pair(11);
  uint64_t i = 0;
  const auto exchange_one = [&](size_t bytes) {
    pair.sent.assign(bytes, 1);
    pair.received.assign(bytes, 0);
    pair.channels[0]->post_send(parcel(pair.sent, i));
    pair.channels[1]->post_recv(parcel(pair.received, i));
    ++i;
    pair.until([&] {
      return pair.channels[0]->sends_completed() == i && pair.channels[1]->recvs_completed() == i;
    });
    CHECK(pair.received == pair.sent);
  };
  exchange_one(kMostWhole);
  CHECK(plugin.comms == 0);
  exchange_one(kMostWhole + 1);
  CHECK(plugin.comms == 2);
  CHECK(plugin.requests == 0);
  CHECK(plugin.regions == 0);
  const uint64_t tests = plugin.tests;
  for (int turn = 0; turn < 100; ++turn) pair.transports[1]->progress();
  CHECK(plugin.tests == tests);
  CHECK(plugin.sent_bytes == kMostWhole + 1 + sizeof(Hello::token));
}

TEST_CASE("memory that cannot be registered waits for other chunks; without any it is an error") {
  fake::NetPlugin& plugin = fake::reset_net_plugin(9);
  plugin.max_bytes = 64 << 10;
  plugin.late = 30;
  {
    Pair pair(9);
    pair.sent.assign(6 << 20, 1);
    pair.received.assign(6 << 20, 0);
    pair.channels[0]->post_send(parcel(pair.sent, 0));
    pair.channels[1]->post_recv(parcel(pair.received, 0));
    pair.until([&] { return plugin.requests > 10; });
    plugin.fail_registrations = 2;
    pair.until([&] {
      for (const auto& channel : pair.channels)
        REQUIRE_MESSAGE(channel->status().ok(), channel->status().message());
      return pair.channels[1]->recvs_completed() == 1;
    });
    CHECK(plugin.fail_registrations == 0);
    CHECK(pair.received == pair.sent);
  }
  plugin.fail_registrations = 1'000;
  Pair pair(9);
  const Status failure = pair.failure_of(1, 1 << 20);
  for (const char* part : {"hetccltest0", "ncclSystemError", "rank 0", "ulimit -l"})
    CHECK_MESSAGE(has(failure, part), failure.message());
}

TEST_CASE("a failing request becomes one error that names peer, device and what failed") {
  for (const int told : {0, 1}) {
    fake::NetPlugin& plugin = fake::reset_net_plugin(10);
    Pair pair(10);
    plugin.fails_from = 20;
    const Status failure = pair.failure_of(told, 32 << 20);
    CHECK(failure.code() == ErrorCode::RemoteError);
    for (const std::string& part :
         {std::string("net plug-in hetccltest"), std::string("hetccltest0"),
          std::string("ncclRemoteError"), format("rank %d", 1 - told)})
      CHECK_MESSAGE(has(failure, part), failure.message());
    const uint64_t completed = pair.channels[told]->sends_completed();
    for (int i = 0; i < 50; ++i) pair.transports[told]->progress();
    CHECK(pair.channels[told]->status().message() == failure.message());
    CHECK(pair.channels[told]->sends_completed() == completed);
  }
}

TEST_CASE("a size that is not the message's is an error, short or long") {
  for (const int more : {-1, 1, 1'000'000, -100'000'000}) {
    CAPTURE(more);
    fake::NetPlugin& plugin = fake::reset_net_plugin(12);
    Pair pair(12);
    plugin.says_more = more;
    const Status failure = pair.failure_of(1, 100'000);
    CHECK(has(failure, "rank 0 sent"));
    CHECK(pair.channels[1]->recvs_completed() == 0);
  }
}

TEST_CASE("a plug-in that never connects ends by the deadline") {
  for (const int told : {0, 1}) {
    fake::NetPlugin& plugin = fake::reset_net_plugin(8);
    plugin.never_connects = true;
    Config config;
    config.init_timeout_ms = 100;
    Pair pair(8, config);
    const Status failure = pair.failure_of(told, 100'000);
    CHECK(failure.code() == ErrorCode::Timeout);
    CHECK(has(failure, told == 0 ? "made no connection to rank 1 over hetccltest0"
                                 : "made no connection from rank 0 over hetccltest0"));
  }
}

TEST_CASE("a device's limit of connections is named") {
  fake::reset_net_plugin(8).max_comms = 2;  // in this process, which has both ends
  Pair pair(8);
  fake::Thread other([&] {
    (void)pair.transports[1]->connect({78, 1, 0}, pair.addresses[0], Bytes(32, 1), 2'000);
  });
  const auto second =
      pair.transports[0]->connect({78, 0, 1}, pair.addresses[1], Bytes(32, 1), 2'000);
  other.join();
  CHECK(has(second.status(), "takes no more than 2 connections"));
}

TEST_CASE("who finds the plug-in's listener is no peer") {
  fake::NetPlugin& plugin = fake::reset_net_plugin(8);
  plugin.never_connects = true;
  Pair pair(8);
  pair.sent.assign(100'000, 3);
  pair.received.assign(100'000, 0);
  pair.channels[0]->post_send(parcel(pair.sent, 0));
  pair.channels[1]->post_recv(parcel(pair.received, 0));
  pair.until([&] { return plugin.last_port != 0; });
  const Fd stranger(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(plugin.last_port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(stranger.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const uint32_t length = sizeof(Hello::token);
  const Bytes guess(length, 0xee);
  REQUIRE(::write(stranger.get(), &length, sizeof length) == sizeof length);
  REQUIRE(::write(stranger.get(), guess.data(), guess.size()) == length);
  pair.until([&] { return !pair.channels[1]->status().ok(); });
  CHECK(has(pair.channels[1]->status(), "that is not from rank 0"));
  CHECK(pair.received == Bytes(100'000));
}

}  // namespace hetccl::transport::ncclnet
