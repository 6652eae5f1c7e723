// Rules that every transport must follow. Ranks are threads, or just objects of one thread: a
// transport must not depend on which.
#include "transport/transport.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/waker.h"
#include "contract/transport_kinds.h"
#include "fake/patience.h"
#include "fake/reference.h"
#include "fake/thread.h"
#include "transport/message.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/address.h"
#include "transport/tcp/tcp_transport.h"

namespace hetccl::transport {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

constexpr int64_t kPatienceMs = fake::kHangMs;
#if defined(HETCCL_UNDER_TSAN)  // which looks at every byte
constexpr size_t kLongest = 1 << 20;
#else
constexpr size_t kLongest = 8 << 20;
#endif

Bytes secret(uint8_t seed) {
  return Bytes(32, seed);
}

struct Rank {
  std::unique_ptr<Transport> transport;
  Address address;
};

Rank make_rank(const Kind& kind) {
  auto made = kind.make();
  REQUIRE_MESSAGE(made.ok(), made.status().message());
  Rank rank{std::move(made).value(), {}};
  auto address = rank.transport->listen();
  REQUIRE_MESSAGE(address.ok(), address.status().message());
  rank.address = *address;
  return rank;
}

// Two ranks with a channel between them, driven by one thread.
struct Pair {
  explicit Pair(const Kind& kind) {
    for (Rank& rank : ranks) rank = make_rank(kind);
    fake::Thread other([this] { join(1); });
    join(0);
    other.join();
    REQUIRE(channels[0]);
    REQUIRE(channels[1]);
  }
  void join(int self) {
    auto made = ranks[self].transport->connect({77, self, 1 - self}, ranks[1 - self].address,
                                               secret(1), kPatienceMs);
    CHECK_MESSAGE(made.ok(), made.status().message());
    if (made.ok()) channels[self] = std::move(made).value();
  }
  bool step() {
    const bool first = ranks[0].transport->progress();
    return ranks[1].transport->progress() || first;
  }
  // Drives both ends until `done`, or fails the test.
  void until(const std::function<bool()>& done) {
    const auto deadline = steady_clock().now() + milliseconds(kPatienceMs);
    while (!done()) {
      step();
      REQUIRE_MESSAGE(steady_clock().now() < deadline,
                      channels[0]->status().message() << " / " << channels[1]->status().message());
    }
  }
  Rank ranks[2];
  std::unique_ptr<Channel> channels[2];
};

MessageInfo info(uint64_t sequence, uint32_t slice = 0) {
  return {
      77, sequence, slice, 1, {Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, sequence}};
}

Bytes pattern(size_t bytes, uint64_t seed) {
  Bytes data(bytes);
  fake::fill(data.data(), bytes, seed);
  return data;
}

void for_each_kind(const std::function<void(const Kind&)>& test) {
  for (const Kind& kind : kinds()) {
    INFO(std::string(kind.name));
    test(kind);
  }
}

TEST_CASE("messages of all sizes go both ways, in order, whoever posts first") {
  for_each_kind([](const Kind& kind) {
    Pair pair(kind);
    std::mt19937 random(7);
    std::vector<size_t> sizes = {0,    1,    2,    79,    80,     81,     0,      0,       4096,
                                 8111, 8112, 8192, 65536, 262144, 262145, 524288, kLongest};
    for (int i = 0; i < 40; ++i) sizes.push_back(random() % (1U << (random() % 21)));
    std::vector<Bytes> sent[2], received[2];
    for (const size_t size : sizes)
      for (int r = 0; r < 2; ++r) {
        sent[r].push_back(pattern(size, sent[r].size() * 2 + static_cast<size_t>(r)));
        received[r].emplace_back(size, 0xaa);
      }
    size_t next[4] = {};  // sends of 0 and 1, receives of 0 and 1
    const auto post = [&](size_t what) {
      const size_t rank = what % 2;
      const size_t i = next[what];
      if (i == sizes.size()) return;
      ++next[what];
      if (what < 2)
        pair.channels[rank]->post_send({sent[rank][i].data(), sizes[i], info(i)});
      else
        pair.channels[rank]->post_recv({received[rank][i].data(), sizes[i], info(i)});
    };
    pair.until([&] {
      if (random() % 3 == 0) post(random() % 4);
      for (auto& channel : pair.channels)
        REQUIRE_MESSAGE(channel->status().ok(), channel->status().message());
      bool done = true;
      for (const auto& channel : pair.channels)
        done = done && channel->sends_completed() == sizes.size() &&
               channel->recvs_completed() == sizes.size();
      return done;
    });
    CHECK(received[0] == sent[1]);
    CHECK(received[1] == sent[0]);
    uint64_t total = 0;
    for (const size_t size : sizes) total += size + kHeaderBytes;
    for (const Rank& rank : pair.ranks) {
      CHECK(rank.transport->bytes_sent() >= total);
      CHECK(rank.transport->bytes_sent() < total + total / 100 + 40 * kHeaderBytes);
    }
  });
}

TEST_CASE("many outstanding posts complete in order") {
  for_each_kind([](const Kind& kind) {
    Pair pair(kind);
    constexpr size_t kMessages = 3000;
    Bytes sent = pattern(kMessages * 100, 1), received(sent.size());
    for (size_t i = 0; i < kMessages; ++i)
      pair.channels[0]->post_send({&sent[i * 100], 100, info(i)});
    for (int i = 0; i < 100; ++i) pair.step();  // long before anything is posted there
    for (size_t i = 0; i < kMessages; ++i)
      pair.channels[1]->post_recv({&received[i * 100], 100, info(i)});
    uint64_t compared = 0;
    pair.until([&] {
      const uint64_t done = pair.channels[1]->recvs_completed(), from = compared * 100;
      REQUIRE(std::memcmp(&received[from], &sent[from], done * 100 - from) == 0);
      compared = done;
      return done == kMessages;
    });
    pair.until([&] { return pair.channels[0]->sends_completed() == kMessages; });
  });
}

TEST_CASE("nothing is delivered before it is posted, and an idle channel is silent") {
  for_each_kind([](const Kind& kind) {
    Pair pair(kind);
    Bytes sent = pattern(16 << 20, 3);  // more than any buffer between them
    pair.channels[0]->post_send({sent.data(), sent.size(), info(0)});
    const auto deadline = steady_clock().now() + milliseconds(kPatienceMs);
    const auto is_silent = [](const Rank& rank) {
      pollfd entry{rank.transport->poll_fd(), POLLIN, 0};
      return rank.transport->poll_fd() < 0 || ::poll(&entry, 1, 0) == 0;
    };
    for (int quiet = 0; quiet < 200;) {
      REQUIRE(steady_clock().now() < deadline);
      const bool moves = pair.step() || !is_silent(pair.ranks[0]) || !is_silent(pair.ranks[1]);
      quiet = moves ? 0 : quiet + 1;
    }
    CHECK(pair.channels[0]->sends_completed() == 0);             // held back, not swallowed
    for (const Rank& rank : pair.ranks) CHECK(is_silent(rank));  // else the engine would spin
    Bytes received(sent.size());
    pair.channels[1]->post_recv({received.data(), received.size(), info(0)});
    pair.until([&] { return pair.channels[1]->recvs_completed() == 1; });
    CHECK(received == sent);
  });
}

TEST_CASE("the next message shows once all posted receives are complete") {
  for_each_kind([](const Kind& kind) {
    Pair pair(kind);
    Channel& receiver = *pair.channels[1];
    Bytes first = pattern(1 << 20, 1), second = pattern(0, 2), third = pattern(3 << 20, 3);
    Bytes got(third.size());
    CHECK_FALSE(receiver.incoming());
    pair.channels[0]->post_send({first.data(), first.size(), info(5)});
    pair.channels[0]->post_send({second.data(), second.size(), info(6)});
    pair.channels[0]->post_send({third.data(), third.size(), info(7)});
    for (uint64_t sequence = 5; sequence < 8; ++sequence) {
      const Bytes& sent = sequence == 5 ? first : sequence == 6 ? second : third;
      pair.until([&] { return receiver.incoming().has_value(); });
      CHECK(receiver.incoming()->sequence == sequence);
      CHECK(receiver.incoming()->signature == info(sequence).signature);
      const uint64_t before = receiver.recvs_completed();
      receiver.post_recv({got.data(), sent.size(), info(sequence)});
      pair.until([&] { return receiver.recvs_completed() == before + 1; });
      CHECK(std::equal(sent.begin(), sent.end(), got.begin()));
    }
    CHECK_FALSE(receiver.incoming());
    pair.until([&] { return pair.channels[0]->sends_completed() == 3; });
  });
}

TEST_CASE("what differs between the ends is explained, and stays") {
  for_each_kind([](const Kind& kind) {
    Pair pair(kind);
    Bytes data(48);
    MessageInfo theirs = info(5), ours = info(5);
    theirs.signature.count = 10;
    ours.signature.count = 12;
    pair.channels[1]->post_send({data.data(), 40, theirs});
    pair.channels[0]->post_recv({data.data(), 48, ours});
    pair.until([&] { return !pair.channels[0]->status().ok(); });
    const Status& status = pair.channels[0]->status();
    CHECK(status.code() == ErrorCode::InvalidUsage);
    CHECK(status.message().find("rank 1 called all_reduce (10 float32, sum)") != std::string::npos);
    CHECK(status.message().find("all_reduce (12 float32, sum)") != std::string::npos);
    pair.channels[1]->post_send({data.data(), 8, info(6)});
    pair.channels[0]->post_recv({data.data(), 8, info(6)});
    for (int i = 0; i < 50; ++i) pair.step();
    CHECK(pair.channels[0]->recvs_completed() == 0);
    CHECK(status.message().find("(10 float32") != std::string::npos);
  });
}

TEST_CASE("a peer that leaves in the middle is named; what it sent before arrives") {
  for_each_kind([](const Kind& kind) {
    Pair pair(kind);
    Bytes sent = pattern(kind.buffers, 4), received(sent.size());
    pair.channels[1]->post_send({sent.data(), sent.size(), info(0)});
    pair.until([&] { return pair.channels[1]->sends_completed() == 1; });
    pair.channels[1]->close();
    for (int i = 0; i < 50; ++i) pair.step();
    Bytes never(100);
    pair.channels[0]->post_recv({received.data(), received.size(), info(0)});
    pair.channels[0]->post_recv({never.data(), never.size(), info(1)});
    pair.until([&] { return !pair.channels[0]->status().ok(); });
    CHECK(pair.channels[0]->recvs_completed() == 1);
    CHECK(received == sent);
    CHECK(pair.channels[0]->status().code() == ErrorCode::RemoteError);
    CHECK(pair.channels[0]->status().message().find("connection to rank 1 closed") !=
          std::string::npos);
    CHECK(pair.channels[1]->status().code() == ErrorCode::Aborted);
  });
}

TEST_CASE("a send fails that a peer has not taken as it left, though a message of its is unread") {
  for_each_kind([](const Kind& kind) {
    if (!kind.fails_sends) return;
    Bytes small(100), large(64 << 20);
    Pair pair(kind);
    pair.channels[1]->post_send({small.data(), small.size(), info(0)});
    pair.until([&] { return pair.channels[0]->incoming().has_value(); });
    pair.channels[0]->post_send({large.data(), large.size(), info(0)});
    for (int i = 0; i < 20; ++i) pair.step();
    pair.channels[1]->close();
    pair.until([&] { return !pair.channels[0]->status().ok(); });
    CHECK(pair.channels[0]->status().code() == ErrorCode::RemoteError);
    CHECK(pair.channels[0]->sends_completed() == 0);
  });
}

TEST_CASE("who arms a transport and sleeps on its descriptor is woken by a message") {
  for_each_kind([](const Kind& kind) {
    Pair pair(kind);
    Transport& sleeper = *pair.ranks[1].transport;
    if (sleeper.poll_fd() < 0) return;
    Bytes data(100), received(data.size());
    for (uint64_t i = 0; i < 20; ++i) {
      const auto arm = [&] {
        sleeper.arm(true);
        return sleeper.progress();
      };
      pair.until([&] { return !arm(); });
      pair.channels[1]->post_recv({received.data(), received.size(), info(i)});
      pair.channels[0]->post_send({data.data(), data.size(), info(i)});
      const auto deadline = steady_clock().now() + milliseconds(kPatienceMs);
      pollfd entry{sleeper.poll_fd(), POLLIN, 0};
      while (::poll(&entry, 1, 0) == 0) {
        pair.ranks[0].transport->progress();
        REQUIRE(steady_clock().now() < deadline);
      }
      sleeper.arm(false);
      pair.until([&] { return pair.channels[1]->recvs_completed() == i + 1; });
    }
  });
}

TEST_CASE("a peer's leaving is noticed though nothing is posted, and with sends outstanding") {
  for_each_kind([](const Kind& kind) {
    for (const bool sending : {false, true}) {
      Bytes data(64 << 20);  // outlives the channel: other threads may still write of it
      Pair pair(kind);
      if (sending) pair.channels[0]->post_send({data.data(), data.size(), info(0)});
      for (int i = 0; i < 20; ++i) pair.step();
      pair.channels[1].reset();
      pair.until([&] { return !pair.channels[0]->status().ok(); });
      CHECK(pair.channels[0]->status().code() == ErrorCode::RemoteError);
      // And then there is peace.
      pair.until([&] {
        int quiet = 0;
        while (quiet < 10 && !pair.step()) ++quiet;
        return quiet == 10;
      });
    }
  });
}

TEST_CASE("close with posts outstanding frees their memory at once; any order of ends is fine") {
  for_each_kind([](const Kind& kind) {
    for (const bool transport_first : {false, true}) {
      Pair pair(kind);
      auto sent = std::make_unique<Bytes>(4 << 20);
      auto received = std::make_unique<std::array<Bytes, 2>>();
      received->fill(*sent);
      for (size_t i = 0; i < 2; ++i) {
        Bytes& into = (*received)[i];
        pair.channels[i]->post_send({sent->data(), sent->size(), info(0)});
        pair.channels[i]->post_recv({into.data(), into.size(), info(0)});
      }
      pair.step();
      if (transport_first) pair.ranks[0].transport.reset();
      pair.channels[0]->close();
      pair.channels[1]->close();
      sent.reset();  // a later touch is AddressSanitizer's to find
      received.reset();
      const uint64_t completed = pair.channels[1]->recvs_completed();
      pair.channels[1]->post_send({nullptr, 10, info(1)});
      pair.channels[1]->post_recv({nullptr, 10, info(1)});
      for (int i = 0; i < 20; ++i) pair.ranks[1].transport->progress();
      pair.channels[0]->close();
      CHECK(pair.channels[1]->recvs_completed() == completed);
    }
  });
}

// Every pair of `n` ranks connects; each rank in its own order, in one thread or in one per peer.
void connect_all(const Kind& kind, int n, bool threads_per_peer) {
  std::vector<Rank> ranks;
  for (int r = 0; r < n; ++r) ranks.push_back(make_rank(kind));
  std::vector<std::vector<std::unique_ptr<Channel>>> channels(static_cast<size_t>(n));
  for (auto& row : channels) row.resize(static_cast<size_t>(n));
  const auto join = [&](int self, int peer) {
    auto made = ranks[static_cast<size_t>(self)].transport->connect(
        {5, self, peer}, ranks[static_cast<size_t>(peer)].address, secret(2), kPatienceMs);
    CHECK_MESSAGE(made.ok(), made.status().message());
    if (made.ok())
      channels[static_cast<size_t>(self)][static_cast<size_t>(peer)] = std::move(made).value();
  };
  std::vector<fake::Thread> threads;
  for (int self = 0; self < n; ++self) {
    if (threads_per_peer) {
      for (int peer = 0; peer < n; ++peer)
        if (peer != self) threads.emplace_back(join, self, peer);
    } else {
      // 0 waits for n-1, 1 for 0, 2 for 1 ...: a circle, in which ranks must not wait for ever.
      threads.emplace_back([&, self] {
        for (int i = 1; i < n; ++i) join(self, (self - i + n) % n);
      });
    }
  }
  for (fake::Thread& thread : threads) thread.join();
  std::vector<int> values(static_cast<size_t>(n * n), -1);
  std::vector<int> mine(static_cast<size_t>(n));
  for (int a = 0; a < n; ++a) {
    mine[static_cast<size_t>(a)] = a;
    for (int b = 0; b < n; ++b) {
      if (a == b) continue;
      Channel& channel = *channels[static_cast<size_t>(a)][static_cast<size_t>(b)];
      channel.post_send({&mine[static_cast<size_t>(a)], sizeof(int), info(1)});
      channel.post_recv({&values[static_cast<size_t>(a * n + b)], sizeof(int), info(1)});
    }
  }
  const auto end = steady_clock().now() + milliseconds(kPatienceMs);
  const auto is_received = [](const auto& channel) {
    return !channel || channel->recvs_completed() == 1;
  };
  for (auto& row : channels)
    while (!std::all_of(row.begin(), row.end(), is_received) && steady_clock().now() < end)
      for (Rank& rank : ranks) rank.transport->progress();
  for (int a = 0; a < n; ++a)
    for (int b = 0; b < n; ++b)
      if (a != b) CHECK(values[static_cast<size_t>(a * n + b)] == b);
}

TEST_CASE("all pairs connect crosswise, in any order") {
  for_each_kind([](const Kind& kind) {
    if (kind.takes_all) connect_all(kind, 4, false);
    connect_all(kind, 4, true);
  });
}

TEST_CASE("ranks of one process may share a transport") {
  for_each_kind([](const Kind& kind) {
    Rank shared = make_rank(kind);
    std::unique_ptr<Channel> channels[3][3];
    std::vector<fake::Thread> threads;
    for (int self = 0; self < 3; ++self)
      threads.emplace_back([&, self] {
        for (int peer = 0; peer < 3; ++peer) {
          if (peer == self) continue;
          auto made =
              shared.transport->connect({5, self, peer}, shared.address, secret(2), kPatienceMs);
          CHECK_MESSAGE(made.ok(), made.status().message());
          if (made.ok()) channels[self][peer] = std::move(made).value();
        }
      });
    for (fake::Thread& thread : threads) thread.join();
    int mine[3] = {0, 1, 2}, values[3][3] = {};
    const auto each_pair = [](const auto& act) {
      for (int a = 0; a < 3; ++a)
        for (int b = 0; b < 3; ++b)
          if (a != b) act(a, b);
    };
    each_pair([&](int a, int b) {
      REQUIRE(channels[a][b]);
      channels[a][b]->post_send({&mine[a], sizeof(int), info(1)});
      channels[a][b]->post_recv({&values[a][b], sizeof(int), info(1)});
    });
    const auto end = steady_clock().now() + milliseconds(kPatienceMs);
    each_pair([&](int a, int b) {
      while (channels[a][b]->recvs_completed() == 0 && steady_clock().now() < end)
        shared.transport->progress();
    });
    each_pair([&](int a, int b) { CHECK(values[a][b] == b); });
  });
}

TEST_CASE("a wrong secret connects nobody, and the right one still does afterwards") {
  for_each_kind([](const Kind& kind) {
    Rank ranks[2] = {make_rank(kind), make_rank(kind)};
    const auto attempt = [&](const Bytes& zero, const Bytes& one, int64_t ms, bool expected) {
      fake::Thread other([&] {
        auto made = ranks[1].transport->connect({9, 1, 0}, ranks[0].address, one, ms);
        CHECK(made.ok() == expected);
        if (!expected)
          CHECK((made.status().code() == ErrorCode::Timeout ||
                 made.status().code() == ErrorCode::RemoteError));
      });
      auto made = ranks[0].transport->connect({9, 0, 1}, ranks[1].address, zero, ms);
      CHECK(made.ok() == expected);
      if (!expected)
        CHECK((made.status().code() == ErrorCode::Timeout ||
               made.status().code() == ErrorCode::RemoteError));
      other.join();
    };
    attempt(secret(1), secret(2), 200, false);
    attempt(secret(3), secret(3), kPatienceMs, true);
  });
}

TEST_CASE("a rank that does not come is named in time") {
  for_each_kind([](const Kind& kind) {
    Rank ranks[2] = {make_rank(kind), make_rank(kind)};
    for (const int self : {0, 1}) {
      const auto start = steady_clock().now();
      auto made = ranks[self].transport->connect({9, self, 1 - self}, ranks[1 - self].address,
                                                 secret(1), 60);
      CHECK(steady_clock().now() - start < fake::kHang);
      CHECK(made.status().code() == ErrorCode::Timeout);
      CHECK(made.status().message().find(format("rank %d", 1 - self)) != std::string::npos);
    }
    auto junk = ranks[0].transport->connect({9, 0, 1}, Bytes(33, 0xee), secret(1), 60);
    CHECK(junk.status().code() == ErrorCode::InvalidArgument);
  });
}

TEST_CASE("a rank may come long before its peer") {
  for_each_kind([](const Kind& kind) {
    Rank ranks[2] = {make_rank(kind), make_rank(kind)};
    for (const int early : {0, 1}) {
      const uint64_t communicator = 20 + static_cast<uint64_t>(early);
      fake::Thread first([&] {
        auto made = ranks[early].transport->connect(
            {communicator, early, 1 - early}, ranks[1 - early].address, secret(1), kPatienceMs);
        CHECK_MESSAGE(made.ok(), made.status().message());
      });
      std::this_thread::sleep_for(milliseconds(80));
      const int late = 1 - early;
      auto made = ranks[late].transport->connect({communicator, late, early}, ranks[early].address,
                                                 secret(1), kPatienceMs);
      CHECK_MESSAGE(made.ok(), made.status().message());
      first.join();
    }
  });
}

TEST_CASE("what a peer began and nobody took is let go") {
  for_each_kind([](const Kind& kind) {
    if (!kind.takes_all) return;
    Rank ranks[3] = {make_rank(kind), make_rank(kind), make_rank(kind)};
    // Rank 1 waits only for rank 2, and serves every other peer meanwhile.
    const auto cancel = Cancel::create().value();
    std::unique_ptr<Channel> lonely;
    fake::Thread zero([&] {
      auto made = ranks[0].transport->connect({7, 0, 1}, ranks[1].address, secret(1), kPatienceMs);
      REQUIRE_MESSAGE(made.ok(), made.status().message());
      lonely = std::move(made).value();
      cancel->set(error(ErrorCode::Aborted, "rank 0 is connected"));
    });
    auto missed = ranks[1].transport->connect({7, 1, 2}, ranks[2].address, secret(1),
                                              {kPatienceMs, cancel.get()});
    CHECK(missed.status().code() == ErrorCode::Aborted);
    zero.join();
    char byte = 0;
    lonely->post_recv({&byte, 1, {}});
    ranks[1].transport->forget(8, 1);
    ranks[1].transport->forget(7, 0);
    for (int i = 0; i < 100; ++i) ranks[0].transport->progress();
    CHECK(lonely->status().ok());
    ranks[1].transport->forget(7, 1);
    const auto end = steady_clock().now() + milliseconds(kPatienceMs);
    while (lonely->status().ok() && steady_clock().now() < end) ranks[0].transport->progress();
    CHECK(lonely->status().code() == ErrorCode::RemoteError);
  });
}

TEST_CASE("strangers at the listener disturb nobody") {
  const Kind kind = tcp_kind("tcp, 2 streams", 2, 0);
  Rank ranks[2] = {make_rank(kind), make_rank(kind)};
  auto endpoint = tcp::decode(ranks[1].address);
  REQUIRE(endpoint.ok());
  const net::SocketAddress where = endpoint->addresses.front();
  std::vector<Fd> strangers;
  for (int i = 0; i < 300; ++i) {
    auto fd = net::connect({where}, steady_clock().now() + milliseconds(kPatienceMs));
    REQUIRE(fd.ok());
    const std::string junk(i % 3 == 0 ? 0 : i % 3 == 1 ? 7 : 500, 'G');
    CHECK(net::send_all(fd->get(), junk.data(), junk.size(),
                        steady_clock().now() + milliseconds(kPatienceMs))
              .ok());
    if (i % 5 != 0) strangers.push_back(std::move(fd).value());
  }
  fake::Thread other([&] {
    auto made = ranks[1].transport->connect({3, 1, 0}, ranks[0].address, secret(1), kPatienceMs);
    CHECK_MESSAGE(made.ok(), made.status().message());
  });
  auto made = ranks[0].transport->connect({3, 0, 1}, ranks[1].address, secret(1), kPatienceMs);
  CHECK_MESSAGE(made.ok(), made.status().message());
  other.join();
}

TEST_CASE("a sleeper is woken through its source") {
  auto sleeper_waker = Waker::create();
  REQUIRE(sleeper_waker.ok());
  const Kind kind{"shm", [&] { return make_shm_transport(sleeper_waker->get(), Log{}); }};
  Pair pair(kind);
  Transport& transport = *pair.ranks[1].transport;
  REQUIRE(transport.shm_source() != nullptr);
  CHECK(transport.poll_fd() == -1);
  Bytes data(100), received(100);
  const auto rung = [&](int64_t timeout_ms) {
    pollfd entry{(*sleeper_waker)->fd(), POLLIN, 0};
    return ::poll(&entry, 1, static_cast<int>(timeout_ms)) == 1;
  };
  pair.channels[0]->post_send({data.data(), 100, info(0)});
  CHECK_FALSE(rung(0));  // awake: no system call was spent
  transport.shm_source()->arm();
  pair.channels[0]->post_send({data.data(), 100, info(1)});
  CHECK(rung(kPatienceMs));
  (*sleeper_waker)->drain();
  pair.channels[0]->post_send({data.data(), 100, info(2)});
  CHECK_FALSE(rung(0));  // once is enough
  transport.shm_source()->arm();
  transport.shm_source()->disarm();
  pair.channels[0]->post_send({data.data(), 100, info(3)});
  CHECK_FALSE(rung(0));
}

}  // namespace
}  // namespace hetccl::transport
