// transport/verbs against a peer that knows the secret, has a queue pair and breaks the protocol:
// an error that names it, and no memory is reached that was not granted.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "fake/fake_verbs.h"
#include "fake/patience.h"
#include "fake/thread.h"
#include "net/auth.h"
#include "transport/tcp/acceptor.h"
#include "transport/tcp/address.h"
#include "transport/verbs/fabric.h"
#include "transport/verbs/frame.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/verbs_transport.h"

namespace hetccl::transport::verbs {
namespace {

using Bytes = std::vector<uint8_t>;

TimePoint soon() {
  return steady_clock().now() + fake::kHang;
}

// Rank 1 is the transport; rank 0 is written out by the test.
struct Wire {
  Wire() {
    Config config;
    config.socket_ifname = "=lo";
    transport = make_verbs_transport(fake::verbs_api(), config, Log{LogLevel::Error, -1}).value();
    address = transport->listen().value();
    port = find_ports(fake::verbs_api(), Config()).value().front();
    bool again = false;
    region = port.device->register_memory(memory.data(), memory.size(), abi::kLocalWrite, &again)
                 .value();
    queue = QueuePair::create(port, {.sends = kSends, .receives = kReceives}).value();
    for (uint32_t i = 0; i < kReceives; ++i) REQUIRE(queue->post_receive(i, at(i)).ok());
    fake::Thread dialer([this] { dial(); });
    channel = transport->connect({77, 1, 0}, address, secret, fake::kHangMs).value();
    dialer.join();
    meet();
  }
  void dial() {
    const auto endpoint = tcp::decode(decode(address).value().listener);
    auto fd = net::connect(endpoint.value().addresses, soon());
    REQUIRE(fd.ok());
    const net::Hello hello{tcp::kPurposeOfVerbs, 0, 77, 0, 1};
    wire = net::dial_handshake(std::move(*fd), hello, {secret}, nullptr, soon()).value();
  }
  void meet() {
    uint8_t pair[kQpAddressBytes], receiving = 'R';
    encode(queue->address(), pair);
    REQUIRE(net::send_all(wire.fd(), pair, sizeof pair, soon()).ok());
    REQUIRE(net::recv_all(wire.fd(), pair, sizeof pair, soon()).ok());
    REQUIRE(queue->start_receiving(decode_qp(pair).value(), Config()).ok());
    REQUIRE(net::send_all(wire.fd(), &receiving, 1, soon()).ok());
    for (int i = 0; i < 100; ++i) transport->progress();
    REQUIRE(net::recv_all(wire.fd(), &receiving, 1, soon()).ok());
    REQUIRE(queue->start_sending(Config()).ok());
  }
  abi::Sge at(uint32_t slot) {
    return {reinterpret_cast<uintptr_t>(memory.data() + slot * kSlotBytes), kSlotBytes,
            region.local_key()};
  }
  // What follows the frame is `rest`.
  void send(const Frame& frame, const Bytes& rest, const QueuePair::Remote* remote = nullptr) {
    uint8_t* out = memory.data() + kReceives * kSlotBytes;
    encode(frame, out);
    std::copy(rest.begin(), rest.end(), out + kFrameBytes);
    abi::Sge part = at(kReceives);
    part.length = static_cast<uint32_t>(kFrameBytes + rest.size());
    REQUIRE(queue->post_send(0, {&part, 1}, remote).ok());
  }
  Bytes memory = Bytes((kReceives + 1) * kSlotBytes);
  const Bytes secret = Bytes(32, 5);
  std::unique_ptr<Transport> transport;
  Address address;
  Port port;
  Region region;
  std::unique_ptr<QueuePair> queue;
  std::unique_ptr<Channel> channel;
  net::Wire wire;
};

Bytes header(uint64_t number, uint64_t total, size_t payload) {
  Bytes bytes(kHeaderBytes + payload);
  encode(Header{number, 0, total, total, {77, number, 0, 0, {}}}, bytes.data());
  return bytes;
}

Bytes grant(const Grant& of) {
  Bytes bytes(kGrantBytes);
  encode(of, bytes.data());
  return bytes;
}

void break_protocol(Wire& wire, int fault) {
  const Frame whole{FrameKind::Whole, 0}, of_long{FrameKind::Long, 0},
      granting{FrameKind::Grant, 0};
  if (fault == 0) wire.send({static_cast<FrameKind>(9), 0}, Bytes(100));
  if (fault == 1) wire.send(whole, Bytes(200, 0xee));
  if (fault == 2) wire.send(whole, header(0, 100, 60));
  if (fault == 3) wire.send(of_long, header(0, 0, 0));
  if (fault == 4) wire.send({FrameKind::Credits, 1}, {});
  if (fault == 5) wire.send(granting, grant({0, 0, 4096, 4096, 1, 0}));  // nothing was sent
  if (fault == 6) wire.send(granting, grant({1, 0, 4096, 4096, 1, 0}));
  if (fault == 7) wire.send(whole, header(3, 100, 100));
  if (fault == 8) {
    // Into the queue's own slot, as an answer to a grant that was never made.
    bool again = false;
    const Region open = wire.port.device
                            ->register_memory(wire.memory.data(), kSlotBytes,
                                              abi::kLocalWrite | abi::kRemoteWrite, &again)
                            .value();
    const QueuePair::Remote remote{reinterpret_cast<uintptr_t>(wire.memory.data()),
                                   open.remote_key(), 2};
    wire.send({FrameKind::Credits, 0}, {}, &remote);
  }
  if (fault == 9)
    for (uint64_t i = 0; i <= kCredits; ++i) wire.send(whole, header(i, 10, 10));
}

TEST_CASE("a peer that breaks the protocol is an error that names it") {
  fake::reset_verbs_fabric();
  for (int fault = 0; fault <= 9; ++fault) {
    CAPTURE(fault);
    Wire wire;
    Bytes received(100);
    const Parcel posting{received.data(), received.size(), {77, 0, 0, 0, {}}};
    if (fault < 9) wire.channel->post_recv(posting);
    break_protocol(wire, fault);
    for (const TimePoint end = soon(); wire.channel->status().ok();) {
      wire.transport->progress();
      REQUIRE(steady_clock().now() < end);
    }
    const Status& status = wire.channel->status();
    CHECK_MESSAGE(status.message().find("rank 0") != std::string::npos, status.message());
    CHECK(wire.channel->recvs_completed() == 0);
    wire.transport->progress();  // takes the event of the last completion
    CHECK_FALSE(wire.transport->progress());
  }
}

TEST_CASE("a peer that speaks by hand is understood") {
  fake::reset_verbs_fabric();
  Wire wire;
  Bytes received(100);
  wire.channel->post_recv({received.data(), received.size(), {77, 0, 0, 0, {}}});
  Bytes message = header(0, 100, 100);
  std::fill(message.begin() + kHeaderBytes, message.end(), uint8_t{7});
  wire.send({FrameKind::Whole, 0}, message);
  for (const TimePoint end = soon(); wire.channel->recvs_completed() == 0;) {
    wire.transport->progress();
    REQUIRE(steady_clock().now() < end);
  }
  CHECK(received == Bytes(100, 7));
}

}  // namespace
}  // namespace hetccl::transport::verbs
