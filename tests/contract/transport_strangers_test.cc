// Strangers at transport/tcp's listener, and at the address that a rank dials: channels are made
// all the same. Firewalls: the rank that waits for a peer gets an error that says so.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "fake/captured_stderr.h"
#include "fake/strangers.h"
#include "fake/thread.h"
#include "transport/tcp/acceptor.h"
#include "transport/tcp/address.h"
#include "transport/tcp/tcp_transport.h"

namespace hetccl::transport {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kPatienceMs = fake::kHangMs;

std::vector<uint8_t> secret() {
  return std::vector<uint8_t>(32, 1);
}

TimePoint after(int64_t ms) {
  return steady_clock().now() + milliseconds(ms);
}

struct Rank {
  explicit Rank(LogLevel level = LogLevel::Error) {
    Config config;
    config.tcp_streams = 2;
    config.tcp_threads = 0;
    config.socket_ifname = "=lo";
    transport = make_tcp_transport(config, Log{level, -1}).value();
    address = transport->listen().value();
  }
  [[nodiscard]] tcp::Endpoint endpoint() const { return tcp::decode(address).value(); }
  [[nodiscard]] net::SocketAddress where() const { return endpoint().addresses.front(); }
  std::unique_ptr<Transport> transport;
  Address address;
};

// Ranks 0 and 1 connect; rank 0 dials `of_higher`.
Status connect_both(Rank (&ranks)[2], uint64_t communicator, const Address& of_higher) {
  Status told[2];
  fake::Thread other([&] {
    told[1] = ranks[1]
                  .transport->connect({communicator, 1, 0}, ranks[0].address, secret(), kPatienceMs)
                  .status();
  });
  told[0] =
      ranks[0].transport->connect({communicator, 0, 1}, of_higher, secret(), kPatienceMs).status();
  other.join();
  return told[0].ok() ? std::move(told[1]) : std::move(told[0]);
}

// `total` strangers, at most 1,000 each second.
void check_flood(uint32_t sources, int total) {
  Rank ranks[2];
  const fake::Words hello = fake::true_hello({tcp::kPurpose, 0, 1'000, 0, 1});
  const fake::Words half(hello.begin(), hello.begin() + 30);
  const fake::Flood flood(ranks[1].where(), {1'000, sources, {hello, {}, hello, half}});
  while (flood.count() < 500) std::this_thread::sleep_for(milliseconds(5));
  milliseconds worst{};
  for (uint64_t communicator = 1'000; flood.count() < total; ++communicator) {
    const auto begin = steady_clock().now();
    const Status made = connect_both(ranks, communicator, ranks[1].address);
    REQUIRE_MESSAGE(made.ok(), made.message());
    worst = std::max(worst, std::chrono::ceil<milliseconds>(steady_clock().now() - begin));
    std::this_thread::sleep_for(milliseconds(20));
  }
  MESSAGE(flood.count() << " strangers from " << sources << " addresses; a channel takes at worst "
                        << worst.count() << " ms");
  CHECK(worst < fake::kHang / 2);  // no rank waits for a stranger's deadline
}

TEST_CASE("a flood of half-open handshakes holds up no channel") {
  check_flood(1, 2'000);
  check_flood(10'000, 2'000);
}

TEST_CASE("the same with 20,000 strangers" * doctest::skip()) {
  check_flood(1, 20'000);
  check_flood(10'000, 20'000);
}

TEST_CASE("strangers who answer for a rank do not end its connect") {
  Rank ranks[2];
  const fake::Impostor impostor(ranks[1].where(), fake::wrong_answers());
  auto endpoint = ranks[1].endpoint();
  endpoint.addresses = {impostor.address()};
  const Status made = connect_both(ranks, 5, tcp::encode(endpoint));
  CHECK_MESSAGE(made.ok(), made.message());
  CHECK(impostor.answered() == fake::wrong_answers().size());
}

TEST_CASE("a stranger's time ends though nobody connects; who waits long says for whom") {
  Rank ranks[2];
  auto dialled = net::connect({ranks[0].where()}, after(kPatienceMs));
  REQUIRE(dialled.ok());
  // Swallows packets, as a firewall does: it accepts no connection, and its backlog is full.
  Config config;
  config.socket_family = "inet";
  const net::Listener full = net::listen(config).value();
  REQUIRE(::listen(full.fd.get(), 0) == 0);
  auto endpoint = ranks[1].endpoint();
  endpoint.addresses = {ranks[1].where().with_port(full.port)};
  const auto taken = net::connect(endpoint.addresses, after(kPatienceMs));
  REQUIRE(taken.ok());
  const int64_t limit_ms = 10'000 + fake::patient_ms(500);
  Status told[2];
  const std::string log = fake::stderr_of([&] {
    const auto loud = [&](int self) {
      const Rank own(LogLevel::Warn);
      told[self] =
          own.transport->connect({6, self, 1 - self}, tcp::encode(endpoint), secret(), limit_ms)
              .status();
    };
    fake::Thread other([&] { loud(1); });
    loud(0);
    other.join();
  });
  const std::string at = endpoint.addresses.front().text();
  CAPTURE(log);
  CHECK(log.find("hetccl [rank 0] warn: cannot reach rank 1 at " + at +
                 " for 10 s: open the ports "
                 "of HETCCL_PORT_RANGE") != std::string::npos);
  CHECK(
      log.find("hetccl [rank 1] warn: waiting for rank 0 to connect to this rank at 127.0.0.1:") !=
      std::string::npos);
  CHECK(told[0].code() == ErrorCode::Timeout);
  CHECK(told[0].message().find("no connection to " + at) != std::string::npos);
  CHECK(told[1].code() == ErrorCode::Timeout);
  CHECK(told[1].message().find("HETCCL_PORT_RANGE") != std::string::npos);
  char byte = 0;
  CHECK(net::recv_all(dialled->get(), &byte, 1, after(kPatienceMs)).code() ==
        ErrorCode::RemoteError);
}

}  // namespace
}  // namespace hetccl::transport
