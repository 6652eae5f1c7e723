// Strangers at the coordinator's port: junk, silence, half a handshake, floods. The job continues.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>

#include "bootstrap/coordinator.h"
#include "bootstrap/dial.h"
#include "bootstrap/frame.h"
#include "bootstrap/testing.h"
#include "bootstrap/unique_id.h"
#include "fake/thread.h"

namespace hetccl::bootstrap {
namespace {

using namespace testing;

TimePoint before_refusal() {
  return steady_clock().now() + kHang;
}

Fd stranger(const Invitation& invitation, const std::vector<uint8_t>& says = {}) {
  auto fd = net::connect(invitation.addresses, before_refusal());
  REQUIRE(fd.ok());
  if (!says.empty()) (void)::send(fd->get(), says.data(), says.size(), MSG_NOSIGNAL);
  return std::move(fd).value();
}

bool closed_by_peer(int fd) {
  std::array<uint8_t, 4096> bytes;
  for (;;) {
    const Status got = net::recv_all(fd, bytes.data(), 1, before_refusal());
    if (!got.ok()) return got.code() == ErrorCode::RemoteError;
  }
}

TEST_CASE("a job joins and works among strangers, who are thrown out") {
  const auto one = service(patient_ms(1'000)), two = service(patient_ms(1'000));
  const auto id = one->unique_id();
  const Invitation invitation = decode(id.value()).value();
  std::vector<Fd> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(stranger(invitation));
    strangers.push_back(stranger(invitation, std::vector<uint8_t>(5'000, static_cast<uint8_t>(i))));
    strangers.push_back(stranger(invitation, {'h', 'e', 't', 'c', 'c', 'l', 0, 1, 1, 0}));
  }
  const auto start = steady_clock().now();
  std::vector<FailureBox> boxes(4);
  const Sessions sessions = join_all({one.get(), two.get()}, id.value(), 4, &boxes);
  REQUIRE(complete(sessions));
  std::vector<int> right(4);
  parallel(4, [&](int rank) {
    right[static_cast<size_t>(rank)] = sessions[static_cast<size_t>(rank)]->barrier(kHangMs).ok();
  });
  CHECK(right == std::vector<int>(4, 1));
  CHECK(steady_clock().now() - start < kHang / 2);
  CHECK(std::all_of(strangers.begin(), strangers.end(),
                    [](const Fd& fd) { return closed_by_peer(fd.get()); }));
  for (FailureBox& box : boxes) CHECK(box.count() == 0);
}

TEST_CASE("a flood of silent connections does not keep a rank out") {
  const auto one = service();
  const auto id = one->unique_id();
  const Invitation invitation = decode(id.value()).value();
  std::vector<Fd> strangers;
  for (int i = 0; i < 400; ++i) strangers.push_back(stranger(invitation));
  const auto start = steady_clock().now();
  const auto session = one->join(id.value(), options(0, 1));
  CHECK(session.ok());
  CHECK(steady_clock().now() - start < kHang / 2);
}

// Dials as a process that knows the secret and misuses it.
net::Wire insider(const Invitation& invitation, const Bytes& says) {
  auto wire = dial(invitation, {1, {invitation.secret}, nullptr, before_refusal(), kHang});
  REQUIRE(wire.ok());
  (void)net::send_all(wire->fd(), says.data(), says.size(), before_refusal());
  return std::move(wire).value();
}

TEST_CASE("authenticated nonsense is thrown out; nonsense from a rank names the rank") {
  const auto one = service();
  const auto id = one->unique_id();
  const Invitation invitation = decode(id.value()).value();
  Bytes huge(kHeaderBytes);
  encode_header({kMaxPayload, FrameType::Join}, huge.data());
  CHECK(closed_by_peer(insider(invitation, huge).fd()));
  CHECK(closed_by_peer(insider(invitation, Bytes(64, 0xee)).fd()));
  CHECK(closed_by_peer(insider(invitation, encode_empty(FrameType::Heartbeat)).fd()));
  CHECK(closed_by_peer(insider(invitation, encode(FrameType::Note, Note{kEveryone, {}})).fd()));
}

TEST_CASE("a rank that contributes or tells a note before all have joined is named") {
  for (const Bytes& early :
       {encode(Contribution{0, 100, {}}), encode(FrameType::Note, Note{kEveryone, {}})}) {
    const auto one = service();
    const auto id = one->unique_id();
    Status waiting;
    fake::Thread first([&] { waiting = one->join(id.value(), options(0, 3)).status(); });
    Bytes says = encode(Join{1, 3, kHangMs, kHangMs, 5'000, 1, "an odd one"});
    says.insert(says.end(), early.begin(), early.end());
    const net::Wire odd = insider(decode(id.value()).value(), says);
    first.join();
    CHECK(waiting.code() == ErrorCode::RemoteError);
    CHECK(contains(waiting.message(), "rank 1 (an odd one) was lost: it broke"));
  }
}

TEST_CASE("a note that is too long or for no rank names its sender, and nobody hears it") {
  const Bytes too_long(kMaxNote + 1);
  for (const Note& bad : {Note{2, {}}, Note{-3, {}}, Note{0, too_long}}) {
    const auto one = service();
    const auto id = one->unique_id();
    FailureBox box;
    std::atomic<int> heard = 0;
    JoinOptions mine = options(0, 2, kHangMs, &box);
    mine.on_note = [&](int, std::span<const uint8_t>) { ++heard; };
    Result<std::unique_ptr<Session>> joined = Status();
    fake::Thread first([&] { joined = one->join(id.value(), mine); });
    const net::Wire odd = insider(decode(id.value()).value(),
                                  encode(Join{1, 2, kHangMs, kHangMs, 5'000, 1, "an odd one"}));
    first.join();  // the coordinator has welcomed both
    REQUIRE(joined.ok());
    const Bytes says = encode(FrameType::Note, bad);
    REQUIRE(net::send_all(odd.fd(), says.data(), says.size(), before_refusal()).ok());
    const auto failure = box.wait();
    REQUIRE(failure);
    CHECK(contains(failure->reason, "rank 1 (an odd one) was lost: it broke"));
    CHECK(heard == 0);
  }
}

TEST_CASE("notes of strangers reach nobody") {
  const auto one = service();
  const auto id = one->unique_id();
  const Invitation invitation = decode(id.value()).value();
  std::atomic<int> heard = 0;
  JoinOptions mine = options(0, 1);
  mine.on_note = [&](int, std::span<const uint8_t>) { ++heard; };
  const auto joined = one->join(id.value(), mine);
  REQUIRE(joined.ok());
  const Bytes text(100, 'x');  // longer than the start of a handshake
  const Bytes note = encode(FrameType::Note, Note{0, text});
  const Bytes noted = encode(FrameType::Noted, Note{0, text});
  CHECK(closed_by_peer(stranger(invitation, note).get()));
  CHECK(closed_by_peer(insider(invitation, note).fd()));
  CHECK(closed_by_peer(insider(invitation, noted).fd()));
  CHECK(joined.value()->barrier(kHangMs).ok());
  CHECK(heard == 0);
}

TEST_CASE("a rank that gives up or dies while others wait is named") {
  for (const bool gives_up : {true, false}) {
    const auto one = service();
    const auto id = one->unique_id();
    Status waiting;
    fake::Thread first([&] { waiting = one->join(id.value(), options(0, 3)).status(); });
    Bytes says = encode(Join{1, 3, kHangMs, kHangMs, 5'000, 1, "host u"});
    const Bytes leave = encode_number(FrameType::Leave, 0);
    if (gives_up) says.insert(says.end(), leave.begin(), leave.end());
    net::Wire rank = insider(decode(id.value()).value(), says);
    if (!gives_up) rank.reset();
    first.join();
    CHECK(waiting.code() == ErrorCode::RemoteError);
    CHECK(contains(waiting.message(), gives_up ? "rank 1 (host u) was lost: it gave up"
                                               : "rank 1 (host u) was lost: connection closed"));
  }
}

TEST_CASE("a rank that writes its frames byte by byte is served like any other") {
  const auto one = service();
  const auto id = one->unique_id();
  const Invitation invitation = decode(id.value()).value();
  Result<std::unique_ptr<Session>> joined = Status();
  fake::Thread first([&] { joined = one->join(id.value(), options(0, 2)); });
  const net::Wire slow = insider(invitation, {});
  for (const uint8_t byte : encode(Join{1, 2, kHangMs, kHangMs, 5'000, 1, "slow"})) {
    REQUIRE(net::send_all(slow.fd(), &byte, 1, before_refusal()).ok());
  }
  first.join();
  CHECK(joined.ok());
}

}  // namespace
}  // namespace hetccl::bootstrap
