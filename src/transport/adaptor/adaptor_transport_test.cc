// Faulty transport adaptors: what is refused, what ends, and what is cleaned up. The contract tests
// check the messages (tests/contract/transport_test.cc).
#include "transport/adaptor/adaptor_transport.h"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "fake/captured_stderr.h"
#include "fake/patience.h"
#include "fake/thread.h"
#include "fake/transport_adaptor.h"

namespace hetccl::transport {
namespace {

using fake::TransportFaults;
using std::chrono::milliseconds;

constexpr int64_t kPatienceMs = fake::kHangMs;

std::vector<uint8_t> secret(uint8_t seed = 1) {
  return std::vector<uint8_t>(32, seed);
}

bool has(const Status& status, const char* part) {
  return status.message().find(part) != std::string::npos;
}

// Sets the fault for as long as it lives.
struct With {
  explicit With(const TransportFaults& faults) { fake::set_transport_faults(faults); }
  ~With() { fake::set_transport_faults({}); }
  With(const With&) = delete;
  With& operator=(const With&) = delete;
};

Result<std::unique_ptr<Transport>> make(LogLevel level = LogLevel::Error) {
  Config config;
  config.socket_ifname = "=lo";
  return make_adaptor_transport(adaptor::check(&fake::transport_adaptor(), "it.so", {}).value(),
                                config, Log{level, -1});
}

struct Pair {
  std::unique_ptr<Transport> transports[2] = {make().value(), make().value()};
  std::unique_ptr<Channel> channels[2];

  // Connects both ends, each with its secret. Returns the first failure.
  Status connect(int64_t ms = kPatienceMs, const std::vector<uint8_t>& zero = secret(),
                 const std::vector<uint8_t>& one = secret()) {
    Status told[2];
    const auto join = [&](size_t self, const std::vector<uint8_t>& its_secret) {
      const int rank = static_cast<int>(self);
      auto made = transports[self]->connect({7, rank, 1 - rank},
                                            transports[1 - self]->listen().value(), its_secret, ms);
      told[self] = made.status();
      if (made.ok()) channels[self] = std::move(made).value();
    };
    fake::Thread other([&] { join(1, one); });
    join(0, zero);
    other.join();
    return told[0].ok() ? told[1] : told[0];
  }
  // Drives both ends until `done`.
  void until(const std::function<bool()>& done) {
    const auto end = steady_clock().now() + milliseconds(kPatienceMs);
    while (!done()) {
      for (const auto& transport : transports) transport->progress();
      REQUIRE(steady_clock().now() < end);
    }
  }
};

TEST_CASE("what cannot be opened is refused, with the reason, and destroyed") {
  const auto refusal = [](const TransportFaults& faults) {
    const With with(faults);
    return make().status();
  };
  CHECK(has(refusal({.address_bytes = 5000}), "its address has 5000 bytes, not 1 to 1024"));
  CHECK(has(refusal({.opens_nothing = true}), "open has made no transport"));
  CHECK(has(refusal({.no_descriptor = true}), "its poll_fd cannot be polled"));
  CHECK(fake::open_transports() == 0);
}

TEST_CASE("its name has its version, its score knows hosts") {
  const auto adaptor = adaptor::check(&fake::transport_adaptor(), "it.so", {}).value();
  CHECK(name_of_transport(*adaptor) == "fake-1");
  CHECK(score_adaptor(*adaptor, {"a", true}, {"a", false}) == 150);
  CHECK(score_adaptor(*adaptor, {"a", true}, {"b", true}) == 50);
  CHECK(score_adaptor(*adaptor, {"a", true}, {"a", true, MemoryKind::Device}) < HETCCL_SHM_SCORE);
  CHECK(score_adaptor(*adaptor, {"a", true}, {"a", false, MemoryKind::Device}) == 150);
  CHECK_FALSE(encrypts(*adaptor));
  hetcclTransportAdaptor changed = *fake::transport_adaptor().transport;
  hetcclAdaptorTable table = fake::transport_adaptor();
  table.transport = &changed;
  changed.capabilities = HETCCL_TRANSPORT_ENCRYPTS;
  const auto of_one_host = adaptor::check(&table, "it.so", {}).value();
  CHECK(score_adaptor(*of_one_host, {"a", true}, {"b", true}) == 0);
  CHECK(encrypts(*of_one_host));
  changed.score = [](int) { return -5; };
  CHECK(score_adaptor(*adaptor::check(&table, "it.so", {}).value(), {"a"}, {"a"}) == 0);
  changed.score = [](int) -> int { throw 1; };
  CHECK(score_adaptor(*adaptor::check(&table, "it.so", {}).value(), {"a"}, {"a"}) == 0);
  changed.version = "1 2";
  CHECK(has(adaptor::check(&table, "it.so", {}).status(), "its transport's version"));
  changed.version = "1";
  changed.connect = nullptr;
  CHECK(has(adaptor::check(&table, "it.so", {}).status(), "lacks connect"));
}

TEST_CASE("a connect that throws, makes nothing or hangs ends all the same") {
  Pair pair;
  const auto failure = [&](const TransportFaults& faults, int64_t limit_ms = kPatienceMs) {
    const With with(faults);
    return pair.connect(limit_ms);
  };
  CHECK(has(failure({.throws = true}), "connect: an exception has left the adaptor"));
  CHECK(has(failure({.connects_nothing = true}), "connect has made no channel"));
  const auto begin = steady_clock().now();
  const Status late = failure({.hangs = true}, 100);
  CHECK(late.code() == ErrorCode::Timeout);
  CHECK(has(late, "connecting to rank 1 over fake-1, within 100 ms"));
  CHECK(steady_clock().now() - begin < fake::kHang / 2);
  CHECK(pair.connect().ok());
}

TEST_CASE("who waits long says for whom") {
  const std::string log = fake::stderr_of([&] {
    auto transport = make(LogLevel::Warn).value();
    const auto made = transport->connect({7, 0, 3}, transport->listen().value(), secret(),
                                         10'000 + fake::patient_ms(500));
    CHECK(made.status().code() == ErrorCode::Timeout);
  });
  CHECK_MESSAGE(
      log.find("warn: waiting for rank 3 to connect over fake-1 for 10 s") != std::string::npos,
      log);
}

TEST_CASE("a cancelled connect ends at once, and the adaptor's soon") {
  auto transport = make().value();
  const auto cancel = Cancel::create().value();
  fake::Thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(30));
    cancel->set(error(ErrorCode::Aborted, "no more"));
  });
  const auto made = transport->connect({7, 0, 1}, transport->listen().value(), secret(),
                                       WaitLimit(kPatienceMs, cancel.get()));
  CHECK(made.status().code() == ErrorCode::Aborted);
  canceller.join();
  transport.reset();  // waits for the thread in the adaptor
  CHECK(fake::open_transports() == 0);
}

// The adaptor connects anyone; only the proof detects a stranger.
TEST_CASE("who does not know the secret is refused, and does not end a connect") {
  const With with({.takes_anybody = true});
  Pair pair;
  const Status wrong = pair.connect(200, secret(1), secret(2));
  CHECK(wrong.code() != ErrorCode::Ok);
  CHECK_FALSE(pair.channels[0]);
  CHECK_FALSE(pair.channels[1]);
  CHECK(fake::open_channels() == 0);
  // A stranger comes first, then the peer.
  Status strangers;
  fake::Thread stranger([&] {
    auto made =
        pair.transports[1]->connect({7, 1, 0}, pair.transports[0]->listen().value(), secret(9), 30);
    strangers = made.status();
  });
  fake::Thread late([&] {
    std::this_thread::sleep_for(milliseconds(150));
    auto made = pair.transports[1]->connect({7, 1, 0}, pair.transports[0]->listen().value(),
                                            secret(1), kPatienceMs);
    CHECK_MESSAGE(made.ok(), made.status().message());
    if (made.ok()) pair.channels[1] = std::move(made).value();
  });
  auto made = pair.transports[0]->connect({7, 0, 1}, pair.transports[1]->listen().value(),
                                          secret(1), kPatienceMs);
  CHECK_MESSAGE(made.ok(), made.status().message());
  stranger.join();
  late.join();
  CHECK_FALSE(strangers.ok());
}

TEST_CASE("counts that cannot be, headers that are none, and a broken transport fail the channel") {
  const auto failure = [](const TransportFaults& faults) {
    Pair pair;
    REQUIRE(pair.connect().ok());
    const With with(faults);
    char byte = 1, got = 0;
    pair.channels[1]->post_send({&byte, 1, {}});
    pair.channels[0]->post_recv({&got, 1, {}});
    pair.until([&] { return !pair.channels[0]->status().ok(); });
    CHECK(pair.channels[0]->recvs_completed() == 0);
    return pair.channels[0]->status();
  };
  CHECK(has(failure({.overcounts = true}), "fake: completed counts"));
  const Status spoiled = failure({.spoils = true});
  CHECK(spoiled.code() == ErrorCode::RemoteError);
  CHECK(has(spoiled, "not a message of this version"));
  CHECK(has(failure({.fails = true}), "fake: progress: broken"));
}

TEST_CASE("a message of no bytes arrives though its sender leaves before its receive is posted") {
  Pair pair;
  REQUIRE(pair.connect().ok());
  pair.channels[1]->post_send({nullptr, 0, {}});
  pair.until([&] { return pair.channels[1]->sends_completed() == 1; });
  pair.channels[1]->close();
  for (int i = 0; i < 20; ++i) pair.transports[0]->progress();
  CHECK(pair.channels[0]->incoming());
  pair.channels[0]->post_recv({nullptr, 0, {}});
  CHECK(pair.channels[0]->recvs_completed() == 1);
  pair.until([&] { return !pair.channels[0]->status().ok(); });
  CHECK(has(pair.channels[0]->status(), "connection to rank 1 closed (fake: "));
}

TEST_CASE("all is closed and destroyed, channels before their transport") {
  {
    Pair pair;
    REQUIRE(pair.connect().ok());
    CHECK(fake::open_channels() == 2);
    pair.transports[0].reset();
    CHECK(fake::open_transports() == 2);
    pair.channels[0].reset();
    CHECK(fake::open_transports() == 1);
  }
  CHECK(fake::open_channels() == 0);
  CHECK(fake::open_transports() == 0);
}

}  // namespace
}  // namespace hetccl::transport
