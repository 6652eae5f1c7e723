// Jobs with somebody on the line, and among strangers: with and without encryption.
#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "bootstrap/coordinator.h"
#include "bootstrap/unique_id.h"
#include "comm/ranks.h"
#include "comm/wiretap.h"
#include "fake/captured_stderr.h"
#include "fake/thread.h"
#include "transport/tcp/address.h"

namespace hetccl::comm {
namespace {

using std::chrono::milliseconds;

Config over_tcp(bool encrypt) {
  Config config;
  config.transport_shm = false;
  config.encrypt = encrypt;
  config.socket_ifname = "=lo";
  config.liveness_ms = fake::patient_ms(2'000);
  return config;
}

bootstrap::Invitation invitation(const Ranks& ranks) {
  return bootstrap::decode(ranks.id()).value();
}

net::SocketAddress coordinator_of(const Ranks& ranks) {
  return invitation(ranks).addresses.front();
}

net::SocketAddress listener_of(Ranks& ranks, int rank) {
  for (const auto& listening : ranks.runtime(rank).listening())
    if (listening.transport->name() == "tcp")
      return transport::tcp::decode(listening.address).value().addresses.front();
  FAIL("no listener");
  return {};
}

uint16_t port_of(const net::SocketAddress& address) {
  uint8_t bytes[net::SocketAddress::kEncodedBytes];
  address.encode(bytes);
  return static_cast<uint16_t>(bytes[2] << 8 | bytes[3]);
}

TimePoint soon() {
  return steady_clock().now() + fake::kHang;
}

// --- somebody on the line ---

constexpr std::string_view kPayload =
    "this is the secret payload of a model, sixty-four bytes of it..";

Status broadcast(Ranks& ranks, std::string text) {
  std::vector<Status> statuses(static_cast<size_t>(ranks.n()));
  on_all_ranks(ranks, [&](int rank) {
    std::string data = rank == 0 ? text : std::string(text.size(), '.');
    const Signature signature{Collective::Broadcast, DataType::Uint8, RedOp::Sum, 0, text.size()};
    Status& status = statuses[static_cast<size_t>(rank)];
    status = ranks[rank]->dispatch().call({signature, data.data(), data.data()}, nullptr);
    if (status.ok() && data != text) status = error(ErrorCode::InternalError, "wrong values");
  });
  for (const Status& status : statuses)
    if (!status.ok()) return status;
  return {};
}

// Libraries of fake devices, which think that they are on two hosts, send nothing over the network.
TEST_CASE("with encryption a vendor's library stays inside its host, unless that is allowed") {
  for (const bool allowed : {false, true}) {
    CAPTURE(allowed);
    std::vector<Config> configs(4, over_tcp(true));
    for (size_t r = 0; r < configs.size(); ++r) {
      configs[r].host_id = r % 2 == 0 ? "even" : "odd";
      configs[r].vendor_cleartext = allowed;
    }
    const std::string log = fake::stderr_of([&] {
      on_fake_devices(configs, {}, [&](int, auto& device, std::shared_ptr<Communicator> made) {
        const auto topology =
            topology::Topology::from_json(made->membership().topology_json()).value();
        CHECK(topology.clusters().size() == (allowed ? 1 : 2));
        const auto stream = device.create_stream().value();
        std::vector<float> ones(1000, 1), sums(1000);
        const size_t bytes = ones.size() * sizeof(float);
        void* memory = device.allocate(bytes).value();
        device.upload(memory, ones.data(), bytes);
        const Signature sum{Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, ones.size()};
        CHECK(made->dispatch().call({sum, memory, memory}, stream->native()).ok());
        CHECK(made->finish().ok());
        REQUIRE(device.synchronize(fake::kHang));
        device.download(sums.data(), memory, bytes);
        CHECK(sums == std::vector<float>(1000, 4));
        made.reset();
        device.free(memory);
      });
    });
    CHECK((log.find("HETCCL_ALLOW_VENDOR_CLEARTEXT=1") != std::string::npos) == !allowed);
  }
}

TEST_CASE("who reads the line sees what is said without encryption, and nothing with it") {
  for (const bool encrypt : {false, true}) {
    CAPTURE(encrypt);
    Wiretap tap;
    Ranks ranks({"A", "B"}, over_tcp(encrypt), false);
    std::string text;
    for (int i = 0; i < 5'000; ++i) text += kPayload;
    REQUIRE(broadcast(ranks, text).ok());
    CHECK(tap.bytes_seen() > text.size());
    CHECK(tap.has_seen(kPayload) == !encrypt);
    // The control plane: what ranks say of themselves, and the version of what they run. (Words
    // that are long enough not to come up by chance in what is encrypted.)
    CHECK(tap.has_seen(format(", pid %d", getpid())) == !encrypt);
    CHECK(tap.has_seen("HETCCL_DEPTH=") == !encrypt);
    for (int rank = 0; rank < 2; ++rank) ranks[rank].reset();
  }
}

TEST_CASE("a bit that is changed on the way is an error on every rank, data and control") {
  for (const bool control : {false, true}) {
    CAPTURE(control);
    Wiretap tap;
    Ranks ranks({"A", "B", "B", "C"}, over_tcp(true), false);
    std::string text;
    for (int i = 0; i < 1'000; ++i) text += kPayload;
    REQUIRE(broadcast(ranks, text).ok());
    tap.falsify(port_of(coordinator_of(ranks)), !control);
    std::vector<Status> told(4);
    on_all_ranks(ranks, [&](int rank) {
      std::vector<float> data(50'000);
      const Signature sum{Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, data.size()};
      Status& status = told[static_cast<size_t>(rank)];
      for (const TimePoint deadline = soon(); status.ok() && steady_clock().now() < deadline;)
        status = ranks[rank]->dispatch().call({sum, data.data(), data.data()}, nullptr);
    });
    bool says_why = false;
    for (const Status& status : told) {
      CAPTURE(status.message());
      CHECK(status.code() == ErrorCode::RemoteError);
      // If the control plane is cut everywhere at once, each rank knows only its own error.
      if (!control) CHECK(status.message() == told[0].message());
      says_why |= status.message().find("altered on the way") != std::string::npos;
    }
    CHECK(says_why);
    for (int rank = 0; rank < 4; ++rank) ranks[rank].reset();
  }
}

// --- strangers ---

// A job of four ranks that adds up without end, and counts.
class Worker {
 public:
  explicit Worker(Ranks& ranks) : ranks_(ranks) {
    thread_ = fake::Thread([this] {
      while (!stop_ && wrong_.empty()) {
        wrong_ = run(ranks_, all_reduce(ranks_, 10'007), false);
        ++rounds_;
        std::this_thread::sleep_for(milliseconds(5));  // the tests mostly wait, beside others
      }
    });
  }
  ~Worker() { stop(); }
  std::string stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return wrong_;
  }
  [[nodiscard]] int rounds() const { return rounds_; }
  // Goes on for some rounds more.
  void proceed() {
    const int until = rounds_ + 3;
    for (const TimePoint deadline = soon(); rounds_ < until && steady_clock().now() < deadline;)
      std::this_thread::sleep_for(milliseconds(1));
    CHECK(rounds_ >= until);
  }

 private:
  Ranks& ranks_;
  std::string wrong_;
  std::atomic<bool> stop_{false};
  std::atomic<int> rounds_{0};
  fake::Thread thread_;
};

Fd dial(const net::SocketAddress& address, const std::vector<uint8_t>& says = {}) {
  auto fd = net::connect({address}, soon());
  REQUIRE(fd.ok());
  (void)net::send_all(fd->get(), says.data(), says.size(), soon());
  return std::move(fd).value();
}

bool thrown_out(const Fd& fd) {
  uint8_t byte = 0;
  for (;;) {
    const Status got = net::recv_all(fd.get(), &byte, 1, soon());
    if (!got.ok()) return got.code() == ErrorCode::RemoteError;
  }
}

// A valid hello, then rubbish instead of the next frame.
std::vector<uint8_t> hello_and_a_huge_frame() {
  std::vector<uint8_t> bytes(net::kHelloBytes + net::kProofBytes);
  const uint8_t magic[] = {'h', 'e', 't', 'c', 'c', 'l', 0, 3, bootstrap::kPurpose};
  std::copy(std::begin(magic), std::end(magic), bytes.begin());
  const uint8_t header[bootstrap::kHeaderBytes] = {0xff, 0xff, 0xff, 0x7f, 1, 0, 0, 0};
  bytes.insert(bytes.end(), std::begin(header), std::end(header));
  bytes.resize(bytes.size() + 100'000, 0xff);
  return bytes;
}

// Strangers of every kind, which stay as long as the listener lets them.
std::vector<Fd> strangers_at(const net::SocketAddress& address,
                             const std::vector<uint8_t>& recorded) {
  std::vector<Fd> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(dial(address));
    strangers.push_back(dial(address, std::vector<uint8_t>(10'000, static_cast<uint8_t>(i))));
    strangers.push_back(dial(address, hello_and_a_huge_frame()));
    strangers.push_back(dial(address, recorded));
    strangers.push_back(dial(address, {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}));  // TLS, cut
  }
  return strangers;
}

TEST_CASE("a job forms, works and forms anew among strangers of every kind") {
  for (const bool encrypt : {false, true}) {
    CAPTURE(encrypt);
    std::vector<uint8_t> recorded;
    const std::string log = fake::stderr_of([&] {
      auto tap = std::make_unique<Wiretap>();
      Ranks ranks({"A", "B", "A", "B"}, over_tcp(encrypt), false);
      recorded = tap->first_dialer();
      REQUIRE(run(ranks, all_reduce(ranks, 1000), false).empty());
      // Those on the tap's lines end with it; the next job is without.
      for (int rank = 0; rank < 4; ++rank) ranks[rank].reset();
      tap.reset();
      ranks.join();
      {
        Worker worker(ranks);
        auto at_coordinator = strangers_at(coordinator_of(ranks), recorded);
        worker.proceed();
        CHECK(std::all_of(at_coordinator.begin(), at_coordinator.end(), thrown_out));
        worker.proceed();
        CHECK(worker.stop().empty());
      }
      // The data listeners are open while a job forms.
      auto at_listener = strangers_at(listener_of(ranks, 1), recorded);
      for (Fd& one : strangers_at(listener_of(ranks, 3), recorded))
        at_listener.push_back(std::move(one));
      const auto start = steady_clock().now();
      ranks.join();
      CHECK(steady_clock().now() - start < fake::kHang / 2);
      CHECK(run(ranks, all_reduce(ranks, 1000), false).empty());
    });
    CAPTURE(log);
    CHECK(recorded.size() > net::kHelloBytes + net::kProofBytes);
    CHECK(log.find("the coordinator refused a connection from 127.0.0.1:") != std::string::npos);
    CHECK(log.find("transport tcp refused a connection from 127.0.0.1:") != std::string::npos);
    CHECK(log.find("does not speak hetccl's protocol") != std::string::npos);
    CHECK(std::count(log.begin(), log.end(), '\n') < 60);
  }
}

TEST_CASE("a flood of thousands of connections keeps nobody out") {
  for (const bool encrypt : {false, true}) {
    CAPTURE(encrypt);
    const std::string log = fake::stderr_of([&] {
      Ranks ranks({"A", "B", "B"}, over_tcp(encrypt), false);
      Worker worker(ranks);
      std::atomic<bool> stop{false};
      const auto flood = [&stop](const net::SocketAddress& address, std::atomic<int>& count) {
        std::vector<Fd> open;
        while (!stop) {
          auto fd = net::connect({address}, steady_clock().now() + milliseconds(50));
          if (fd.ok()) open.push_back(std::move(fd).value());
          if (open.size() == 1'000) open.clear();
          ++count;
        }
      };
      std::atomic<int> at_coordinator{0}, at_listener{0};
      const net::SocketAddress control = coordinator_of(ranks), data = listener_of(ranks, 2);
      fake::Thread first([&] { flood(control, at_coordinator); });
      fake::Thread second([&] { flood(data, at_listener); });
      for (const TimePoint deadline = soon();
           (at_coordinator < 3'000 || at_listener < 3'000) && steady_clock().now() < deadline;)
        worker.proceed();
      CHECK(at_coordinator >= 3'000);
      CHECK(at_listener >= 3'000);
      CHECK(worker.stop().empty());
      const auto start = steady_clock().now();
      ranks.join();
      CHECK(steady_clock().now() - start < fake::kHang / 2);
      CHECK(run(ranks, all_reduce(ranks, 1000), false).empty());
      stop = true;
      first.join();
      second.join();
    });
    CAPTURE(log);
    CHECK(log.find("when many others came") != std::string::npos);
    CHECK(std::count(log.begin(), log.end(), '\n') < 100);
  }
}

TEST_CASE("one byte at a time does not keep a stranger in") {
  for (const bool encrypt : {false, true}) {
    Ranks ranks({"A", "B"}, over_tcp(encrypt), false);
    Worker worker(ranks);
    const Fd slow = dial(coordinator_of(ranks));
    const auto start = steady_clock().now();
    const auto hello = hello_and_a_huge_frame();
    bool open = true;
    for (size_t i = 0; open && steady_clock().now() - start < fake::kHang; ++i) {
      open = net::send_all(slow.get(), &hello[i % net::kHelloBytes], 1, soon()).ok();
      pollfd entry{slow.get(), POLLIN | POLLRDHUP, 0};
      open = open && ::poll(&entry, 1, 100) == 0;
    }
    CHECK_FALSE(open);
    CHECK(steady_clock().now() - start < fake::kHang / 2);
    worker.proceed();
    CHECK(worker.stop().empty());
  }
}

TEST_CASE("one who knows the key and stops in the middle of TLS holds nobody up") {
  Ranks ranks({"A", "B"}, over_tcp(true), false);
  Worker worker(ranks);
  const auto tls = net::TlsContext::create();
  REQUIRE(tls.ok());
  const bootstrap::Invitation job = invitation(ranks);
  for (const size_t of_tls : {0UL, 3UL, 40UL}) {
    Fd fd = dial(coordinator_of(ranks));
    // The test passes on the dialer's bytes by hand.
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    const Fd dialer(ends[0]), middle(ends[1]);
    const auto pass_on = [](const Fd& from, const Fd& to, size_t bytes) {
      std::vector<uint8_t> data(bytes);
      REQUIRE(net::recv_all(from.get(), data.data(), bytes, soon()).ok());
      REQUIRE(net::send_all(to.get(), data.data(), bytes, soon()).ok());
    };
    net::DialHandshake handshake({bootstrap::kPurpose, 0, job.communicator, 1}, {job.secret},
                                 tls.value());
    REQUIRE(handshake.advance(dialer.get()) == net::HandshakeState::InProgress);
    pass_on(middle, fd, net::kHelloBytes);
    pass_on(fd, middle, net::kChallengeBytes);
    REQUIRE(handshake.advance(dialer.get()) == net::HandshakeState::InProgress);
    pass_on(middle, fd, net::kProofBytes);
    pass_on(fd, middle, net::kAcceptedBytes);
    REQUIRE(handshake.advance(dialer.get()) == net::HandshakeState::InProgress);
    pass_on(middle, fd, of_tls);
    if (of_tls == 3)
      fd.reset();
    else
      CHECK(thrown_out(fd));  // once its time is over
    worker.proceed();
  }
  CHECK(worker.stop().empty());
}

}  // namespace
}  // namespace hetccl::comm
