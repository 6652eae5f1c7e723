// transport/tcp against a peer that knows the secret and speaks the wire by hand: byte by byte, in
// any order of pieces and streams, or wrongly.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "fake/patience.h"
#include "fake/thread.h"
#include "net/auth.h"
#include "transport/message.h"
#include "transport/tcp/address.h"
#include "transport/tcp/tcp_transport.h"

namespace hetccl::transport {
namespace {

using Bytes = std::vector<uint8_t>;
constexpr uint32_t kStreams = 2;

TimePoint soon() {
  return steady_clock().now() + fake::kHang;
}

// Rank 1 is the transport; rank 0 is written out by the test.
struct Wire {
  Wire() {
    Config config;
    config.tcp_streams = kStreams;
    config.socket_ifname = "=lo";
    auto made = make_tcp_transport(config, Log{LogLevel::Error, -1});
    REQUIRE(made.ok());
    transport = std::move(made).value();
    auto address = transport->listen();
    REQUIRE(address.ok());
    auto endpoint = tcp::decode(*address);
    REQUIRE(endpoint.ok());
    const Bytes secret(32, 5);
    fake::Thread dialer([&] {
      for (uint32_t i = 0; i < kStreams; ++i) {
        auto fd = net::connect(endpoint->addresses, soon());
        CHECK(fd.ok());
        if (!fd.ok()) return;
        auto wire =
            net::dial_handshake(std::move(*fd), {2, i, 77, 0, 1}, {secret}, nullptr, soon());
        CHECK(wire.ok());
        if (wire.ok()) peer[i] = std::move(*wire);
      }
    });
    auto connected = transport->connect({77, 1, 0}, *address, secret, fake::kHangMs);
    dialer.join();
    REQUIRE_MESSAGE(connected.ok(), connected.status().message());
    channel = std::move(connected).value();
  }
  void send(uint32_t stream, const void* data, size_t bytes) {
    REQUIRE(net::send_all(peer[stream].fd(), data, bytes, soon()).ok());
  }
  void send(uint32_t stream, const Header& header, const uint8_t* payload) {
    uint8_t wire[kHeaderBytes];
    encode(header, wire);
    send(stream, wire, sizeof wire);
    send(stream, payload, header.bytes);
  }
  void until(const std::function<bool()>& done) {
    for (const TimePoint deadline = soon(); !done(); transport->progress())
      REQUIRE(steady_clock().now() < deadline);
  }
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Channel> channel;
  net::Wire peer[kStreams];
};

Header piece(uint64_t number, uint64_t offset, uint64_t bytes, uint64_t total) {
  return {number, offset, bytes, total, {77, number, 0, 0, {}}};
}

Parcel posting(uint64_t number, Bytes& data) {
  return {data.data(), data.size(), {77, number, 0, 0, {}}};
}

Bytes counting(size_t bytes) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return data;
}

TEST_CASE("bytes that trickle in one by one are a message") {
  Wire wire;
  const Bytes sent = counting(300);
  Bytes received(300);
  wire.channel->post_recv(posting(0, received));
  uint8_t bytes[kHeaderBytes];
  encode(piece(0, 0, 300, 300), bytes);
  Bytes all(bytes, bytes + kHeaderBytes);
  all.insert(all.end(), sent.begin(), sent.end());
  for (const uint8_t& byte : all) {
    CHECK(wire.channel->recvs_completed() == 0);
    wire.send(0, &byte, 1);
    wire.transport->progress();
  }
  wire.until([&] { return wire.channel->recvs_completed() == 1; });
  CHECK(received == sent);
}

TEST_CASE("pieces arrive in any order over any stream; completion keeps the order posted") {
  Wire wire;
  const Bytes sent = counting(100'000);
  Bytes first(100'000), second(0), third(10);
  wire.send(1, piece(2, 0, 10, 10), sent.data());  // before anything is posted
  wire.send(0, piece(0, 60'000, 40'000, 100'000), sent.data() + 60'000);
  wire.channel->post_recv(posting(0, first));
  wire.channel->post_recv(posting(1, second));
  wire.channel->post_recv(posting(2, third));
  for (int i = 0; i < 100; ++i) wire.transport->progress();
  CHECK(wire.channel->recvs_completed() == 0);
  wire.send(1, piece(0, 0, 60'000, 100'000), sent.data());
  wire.until([&] { return wire.channel->recvs_completed() == 1; });
  CHECK(first == sent);
  wire.send(0, piece(1, 0, 0, 0), sent.data());
  wire.until([&] { return wire.channel->recvs_completed() == 3; });
  CHECK(std::memcmp(third.data(), sent.data(), 10) == 0);
}

TEST_CASE("pieces that arrive in any order find their places in a list") {
  Wire wire;
  const Bytes sent = counting(100'000);
  Bytes first(70'001), second(29'000), third(999);
  const iovec list[] = {
      {first.data(), 70'001}, {nullptr, 0}, {second.data(), 29'000}, {third.data(), 999}};
  Parcel parcel = posting(0, first);
  parcel.bytes = sent.size();
  parcel.list = list;
  wire.channel->post_recv(parcel);
  wire.send(0, piece(0, 99'500, 500, 100'000), sent.data() + 99'500);
  wire.send(1, piece(0, 60'000, 39'500, 100'000), sent.data() + 60'000);
  for (int i = 0; i < 100; ++i) wire.transport->progress();
  CHECK(wire.channel->recvs_completed() == 0);
  wire.send(1, piece(0, 0, 60'000, 100'000), sent.data());
  wire.until([&] { return wire.channel->recvs_completed() == 1; });
  first.insert(first.end(), second.begin(), second.end());
  first.insert(first.end(), third.begin(), third.end());
  CHECK(first == sent);
}

TEST_CASE(
    "a peer that breaks the protocol is an error which names it, never a write out of bounds") {
  const Bytes junk(4096, 0xc3);
  for (int i = 0; i < 12; ++i) {
    const int fault = i / 2;
    CAPTURE(fault);
    Wire wire;
    Bytes received(200, 7);  // a list of its odd bytes, or a hundred
    std::vector<iovec> list;
    for (size_t at = 1; at < 200; at += 2) list.push_back({&received[at], 1});
    Parcel parcel = posting(0, received);
    parcel.bytes = 100;
    if (i % 2 == 1) parcel.list = list;
    wire.channel->post_recv(parcel);
    parcel.info.sequence = 1;
    wire.channel->post_recv(parcel);
    if (fault == 0) wire.send(0, junk.data(), junk.size());
    if (fault == 1) wire.send(0, piece(0, 90, 20, 100), junk.data());
    if (fault == 2) wire.send(0, piece(0, 0, 200, 200), junk.data());
    if (fault == 3) {
      wire.send(0, piece(0, 0, 60, 100), junk.data());
      wire.send(1, piece(0, 0, 60, 100), junk.data());
    }
    if (fault == 4) {
      wire.send(0, piece(0, 0, 100, 100), junk.data());
      wire.send(0, piece(0, 0, 100, 100), junk.data());
    }
    if (fault == 5) {
      wire.send(0, junk.data(), 10);
      wire.peer[0].reset();
    }
    wire.until([&] { return !wire.channel->status().ok(); });
    CHECK(wire.channel->status().message().find("rank 0") != std::string::npos);
    CHECK_FALSE(wire.transport->progress());
    for (size_t at = 0; at < 200; ++at) {
      if (i % 2 == 1 ? at % 2 == 0 : at >= 100) CHECK(received[at] == 7);
    }
  }
}

TEST_CASE("one stream's end waits for what the others still carry") {
  Wire wire;
  const Bytes sent = counting(1000);
  Bytes received(1000);
  wire.channel->post_recv(posting(0, received));
  wire.peer[0].reset();
  for (int i = 0; i < 100; ++i) wire.transport->progress();
  CHECK(wire.channel->status().ok());
  wire.send(1, piece(0, 0, 1000, 1000), sent.data());
  wire.until([&] { return wire.channel->recvs_completed() == 1; });
  CHECK(received == sent);
  wire.peer[1].reset();
  wire.until([&] { return !wire.channel->status().ok(); });
  CHECK(wire.channel->status().code() == ErrorCode::RemoteError);
}

}  // namespace
}  // namespace hetccl::transport
