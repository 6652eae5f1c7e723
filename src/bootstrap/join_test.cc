// Joins that cannot succeed: every rank gets the reason, in bounded time.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "bootstrap/testing.h"
#include "bootstrap/unique_id.h"
#include "fake/captured_stderr.h"

namespace hetccl::bootstrap {
namespace {

using namespace testing;

TEST_CASE("ranks that never come are named to all who wait") {
  const auto one = service();
  const auto id = one->unique_id();
  const std::vector<int> came = {0, 1, 3, 4, 6, 7};
  const int64_t limit_ms = patient_ms(500);
  std::vector<Status> answers(came.size());
  parallel(static_cast<int>(came.size()), [&](int i) {
    const auto at = static_cast<size_t>(i);
    answers[at] = one->join(id.value(), options(came[at], 8, limit_ms)).status();
  });
  for (const Status& answer : answers) {
    CHECK(answer.code() == ErrorCode::Timeout);
    CHECK(contains(answer.message(), format("ranks 2, 5 of 8 never came within %lld ms",
                                            static_cast<long long>(limit_ms))));
  }
  // A late rank still learns why there is nobody.
  CHECK(contains(one->join(id.value(), options(2, 8)).status().message(), "never came"));
}

TEST_CASE("a service that ranks may still ask why they cannot join is in use") {
  const auto one = service();
  const auto id = one->unique_id();
  const TimePoint start = steady_clock().now();
  const int64_t limit_ms = patient_ms(1500);
  parallel(2, [&](int) { CHECK(!one->join(id.value(), options(0, 3, limit_ms)).ok()); });
  CHECK(contains(one->join(id.value(), options(1, 3)).status().message(), "rank 0"));
  while (!one->idle()) {
    REQUIRE(steady_clock().now() - start < kHang);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(steady_clock().now() - start >= std::chrono::milliseconds(limit_ms));
}

TEST_CASE("once all ranks know why they cannot join, the service is idle, however long they had") {
  const auto one = service();
  const auto id = one->unique_id();
  const int64_t hour_ms = 3'600'000;
  parallel(2, [&](int) { CHECK(!one->join(id.value(), options(0, 3, hour_ms)).ok()); });
  for (const int rank : {0, 1, 1}) {
    CHECK_FALSE(one->idle());
    CHECK(contains(one->join(id.value(), options(rank, 3)).status().message(), "rank 0"));
  }
  CHECK_FALSE(one->idle());  // rank 2 does not know it yet
  CHECK(contains(one->join(id.value(), options(2, 3)).status().message(), "rank 0"));
  CHECK(one->idle());
}

struct Pair {
  Status first, second;
};

Pair join_two(const JoinOptions& first, const JoinOptions& second) {
  const auto one = service(), two = service();
  const auto id = one->unique_id();
  Pair answers;
  parallel(2, [&](int i) {
    (i == 0 ? answers.first : answers.second) =
        (i == 0 ? one : two)->join(id.value(), i == 0 ? first : second).status();
  });
  return answers;
}

TEST_CASE("a number given twice, sizes that differ and numbers out of range are told to all") {
  const Pair twice = join_two(options(1, 3), options(1, 3));
  for (const Status& answer : {twice.first, twice.second}) {
    CHECK(answer.code() == ErrorCode::InvalidArgument);
    CHECK(contains(answer.message(), "rank 1 was given twice"));
  }
  const Pair sizes = join_two(options(0, 2), options(1, 3));
  for (const Status& answer : {sizes.first, sizes.second}) {
    CHECK(answer.code() == ErrorCode::InvalidArgument);
    CHECK(contains(answer.message(), "disagree on the communicator's size"));
  }
  const Pair range = join_two(options(0, 2), options(2, 2));
  for (const Status& answer : {range.first, range.second}) {
    CHECK(answer.code() == ErrorCode::InvalidArgument);
    CHECK(contains(answer.message(), "rank 2 (host t, pid 1002) is out of range"));
  }
  const Pair none = join_two(options(0, 0), options(1, -5));
  CHECK(none.first.code() == ErrorCode::InvalidArgument);
  CHECK(none.second.code() == ErrorCode::InvalidArgument);
}

TEST_CASE("a duplicate does not disturb a communicator that is complete") {
  const auto one = service(), two = service();
  const auto id = one->unique_id();
  std::vector<FailureBox> boxes(2);
  const Sessions sessions = join_all({one.get()}, id.value(), 2, &boxes);
  REQUIRE(complete(sessions));
  const Status extra = two->join(id.value(), options(1, 2)).status();
  CHECK(extra.code() == ErrorCode::InvalidArgument);
  CHECK(contains(extra.message(), "rank 1 was given twice"));
  std::vector<int> right(2);
  parallel(2, [&](int r) {
    right[static_cast<size_t>(r)] = sessions[static_cast<size_t>(r)]->barrier(kHangMs).ok();
  });
  CHECK(right == std::vector<int>(2, 1));
}

TEST_CASE("a wrong secret and an unknown communicator are refused with the remedy") {
  const auto one = service(), two = service();
  const auto id = one->unique_id();
  Invitation altered = decode(id.value()).value();
  altered.secret[5] ^= 1;
  altered.host = {};  // the host's mark is made with the secret
  // Retries until the deadline, because the answer may have come from a stranger.
  const Status wrong = two->join(encode(altered), options(0, 1, patient_ms(500))).status();
  CHECK(wrong.code() == ErrorCode::RemoteError);
  CHECK(contains(wrong.message(), "cannot join: "));
  CHECK(contains(wrong.message(), "give every rank the unique id made in this run"));
  Invitation unknown = decode(id.value()).value();
  unknown.communicator ^= 1;
  CHECK(two->join(encode(unknown), options(0, 1, patient_ms(500))).status().code() ==
        ErrorCode::RemoteError);
  CHECK(two->join(UniqueId{}, options(0, 1)).status().code() == ErrorCode::InvalidArgument);
  CHECK(two->join(id.value(), options(0, 1)).ok());
}

TEST_CASE("an id whose process is gone times out and names the address") {
  auto one = service();
  const auto two = service();
  const auto id = one->unique_id();
  one.reset();
  const Status gone = two->join(id.value(), options(1, 2, 300)).status();
  CHECK(gone.code() == ErrorCode::Timeout);
  CHECK(contains(gone.message(), "127.0.0.1"));
}

TEST_CASE("a coordinator that accepts and does not answer is a timeout, and no other job's") {
  const auto one = service();
  const auto id = one->unique_id();
  const net::Listener mute = net::listen(config()).value();
  Invitation invitation = decode(id.value()).value();
  invitation.addresses = {invitation.addresses.front().with_port(mute.port)};
  const Status told = service()->join(encode(invitation), options(1, 2, patient_ms(300))).status();
  CHECK(told.code() == ErrorCode::Timeout);
  CHECK(contains(told.message(), "the coordinator does not answer (127.0.0.1:"));
}

TEST_CASE("who waits for others says for whom, and who reaches nobody says so") {
  // Swallows data as a firewall does: nothing accepts, and the backlog is full.
  Config only_v4 = config();
  only_v4.socket_family = "inet";
  const net::Listener full = net::listen(only_v4).value();
  REQUIRE(::listen(full.fd.get(), 0) == 0);
  const int64_t limit_ms = 10'000 + patient_ms(500);
  Status one_told, two_told;
  std::string coordinator, wall;
  const std::string log = fake::stderr_of([&] {
    const auto one = Service::create(config(), Log{}).value();
    const auto two = Service::create(config(), Log{}).value();
    const auto id = one->unique_id();
    Invitation invitation = decode(id.value()).value();
    coordinator = net::list_of(invitation.addresses);
    invitation.addresses = {invitation.addresses.front().with_port(full.port)};
    wall = invitation.addresses.front().text();
    const auto taken = net::connect(invitation.addresses, steady_clock().now() + kHang);
    REQUIRE(taken.ok());
    parallel(2, [&](int i) {
      (i == 0 ? one_told : two_told) =
          i == 0 ? one->join(id.value(), options(0, 4, limit_ms)).status()
                 : two->join(encode(invitation), options(2, 4, limit_ms)).status();
    });
  });
  CAPTURE(log);
  const std::string remedy =
      "open the ports of HETCCL_PORT_RANGE in every host's firewall, or choose an interface that "
      "all hosts reach with HETCCL_SOCKET_IFNAME";
  CHECK(contains(log, "hetccl warn: waiting for ranks 1, 2, 3 of 4 at " + coordinator +
                          " for 10 s: check that they run and reach this address, else " + remedy));
  CHECK(contains(log,
                 "hetccl [rank 2] warn: cannot reach the coordinator (rank 0's process, or "
                 "whichever made the unique id) at " +
                     wall + " for 10 s: check that it runs, else " + remedy));
  CHECK(one_told.code() == ErrorCode::Timeout);
  CHECK(contains(one_told.message(), format("ranks 1, 2, 3 of 4 never came within %lld ms to ",
                                            static_cast<long long>(limit_ms)) +
                                         coordinator));
  CHECK(contains(one_told.message(), remedy));
  CHECK(two_told.code() == ErrorCode::Timeout);
  CHECK(contains(two_told.message(), "no connection to " + wall));
  CHECK(contains(two_told.message(), remedy));
}

TEST_CASE("two jobs share a port range, each on a port of its own") {
  Config ranged = config();
  ranged.port_range = "39610-39690";
  const auto one = Service::create(ranged, Log{}).value();
  const auto two = Service::create(ranged, Log{}).value();
  const auto first = one->unique_id(), second = two->unique_id();
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(decode(first.value()).value().addresses[0].text() !=
        decode(second.value()).value().addresses[0].text());
  CHECK(one->join(second.value(), options(0, 1)).ok());
  CHECK(two->join(first.value(), options(0, 1)).ok());
}

}  // namespace
}  // namespace hetccl::bootstrap
