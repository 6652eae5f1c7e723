// transport/verbs against a peer that knows the secret, has a queue pair and breaks the protocol:
// an error that names it, and no memory is reached that was not granted.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/little_endian.h"
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
  explicit Wire(bool meets = true) {
    Config config;
    config.socket_ifname = "=lo";
    config.rdma_timeout = 1;
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
    if (meets) meet();
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
    progress();
    REQUIRE(net::recv_all(wire.fd(), &receiving, 1, soon()).ok());
    REQUIRE(queue->start_sending(Config()).ok());
  }
  abi::Sge at(uint32_t slot) {
    return {reinterpret_cast<uintptr_t>(memory.data() + slot * kSlotBytes), kSlotBytes,
            region.local_key()};
  }
  // Long enough for descriptors to be looked at.
  void progress() {
    for (int i = 0; i < 200; ++i) transport->progress();
  }
  // `rest` follows the frame.
  void send(const Frame& frame, const Bytes& rest) {
    uint8_t* out = memory.data() + kReceives * kSlotBytes;
    encode(frame, out);
    std::copy(rest.begin(), rest.end(), out + kFrameBytes);
    abi::Sge part = at(kReceives);
    part.length = static_cast<uint32_t>(kFrameBytes + rest.size());
    REQUIRE(queue->post_send(0, {&part, 1}, nullptr).ok());
  }
  void write(const Grant& grant, size_t bytes, uint32_t index) {
    abi::Sge part = at(kReceives);
    part.length = static_cast<uint32_t>(bytes);
    const QueuePair::Remote remote{grant.address, grant.key, index};
    REQUIRE(queue->post_send(0, {&part, 1}, &remote).ok());
  }
  void say(const Bytes& bytes) {
    REQUIRE(net::send_all(wire.fd(), bytes.data(), bytes.size(), soon()).ok());
  }
  // Grants come for a message of `bytes`, for which a receive is posted.
  Grant begin_long(size_t bytes);
  void end_with_error() {
    for (const TimePoint end = soon(); channel->status().ok();) {
      transport->progress();
      REQUIRE(steady_clock().now() < end);
    }
  }
  Bytes memory = Bytes((kReceives + 1) * kSlotBytes + kChunkBytes);
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
  encode(Header{number, 0, total, total, {77, 0, 0, 0, {}}}, bytes.data());
  return bytes;
}

Bytes grant(const Grant& of) {
  Bytes bytes(kGrantBytes);
  encode(of, bytes.data());
  return bytes;
}

Grant Wire::begin_long(size_t bytes) {
  send({FrameKind::Long, 0}, header(0, bytes, 0));
  abi::Wc completion{};
  for (const TimePoint end = soon();;) {
    transport->progress();
    const int n = queue->poll({&completion, 1});
    if (n == 1 && completion.opcode == abi::kWcRecv && completion.bytes > kFrameBytes) break;
    REQUIRE(steady_clock().now() < end);
  }
  return decode_grant(memory.data() + completion.id * kSlotBytes + kFrameBytes);
}

Bytes goodbye(uint64_t delivered, uint64_t arrived) {
  Bytes bytes(16);
  put_number(bytes.data(), delivered);
  put_number(bytes.data() + 8, arrived);
  return bytes;
}

constexpr size_t kLong = kChunkBytes + 50'000;  // two chunks
using Fault = std::pair<const char*, std::function<void(Wire&)>>;

std::vector<Fault> frame_faults() {
  const auto whole = [](Wire& wire, const Bytes& rest) { wire.send({FrameKind::Whole, 0}, rest); };
  return {
      {"no frame", [](Wire& wire) { wire.send({static_cast<FrameKind>(9), 0}, Bytes(100)); }},
      {"no header", [=](Wire& wire) { whole(wire, Bytes(200, 0xee)); }},
      {"too few bytes", [=](Wire& wire) { whole(wire, header(0, 100, 60)); }},
      {"a message of nothing as a long one",
       [](Wire& wire) { wire.send({FrameKind::Long, 0}, header(0, 0, 0)); }},
      {"too many credits", [](Wire& wire) { wire.send({FrameKind::Credits, 1}, {}); }},
      {"another message's number", [=](Wire& wire) { whole(wire, header(3, 100, 100)); }},
      {"a grant of nothing",
       [](Wire& wire) { wire.send({FrameKind::Grant, 0}, grant({0, 0, 4096, 4096, 1, 0})); }},
      {"a grant of a message to come",
       [](Wire& wire) { wire.send({FrameKind::Grant, 0}, grant({1, 0, 4096, 4096, 1, 0})); }},
      {"more messages than credits",
       [=](Wire& wire) {
         for (uint64_t i = 0; i <= kCredits; ++i) whole(wire, header(i, 10, 10));
       }},
  };
}

std::vector<Fault> long_faults() {
  const auto grants = [](uint64_t offset, uint64_t bytes) {
    return [=](Wire& wire) {
      static Bytes data(kLong);
      wire.channel->post_send({data.data(), data.size(), {77, 0, 0, 0, {}}});
      wire.progress();
      wire.send({FrameKind::Grant, 0}, grant({0, offset, bytes, 4096, 1, 0}));
    };
  };
  return {
      {"a write that is short",
       [](Wire& wire) {
         const Grant granted = wire.begin_long(kLong);
         wire.write(granted, granted.bytes - 1, granted.index);
       }},
      {"a write of no bytes",
       [](Wire& wire) {
         const Grant granted = wire.begin_long(kLong);
         wire.write(granted, 0, granted.index);
       }},
      {"a write of another grant's index",
       [](Wire& wire) {
         const Grant granted = wire.begin_long(kLong);
         wire.write(granted, granted.bytes, kGrants - 1);
       }},
      {"a write to a grant that has ended",
       [](Wire& wire) {
         const Grant granted = wire.begin_long(kLong);
         wire.write(granted, granted.bytes, granted.index);
         wire.progress();
         CHECK(wire.channel->status().ok());
         wire.write(granted, granted.bytes, granted.index);
       }},
      {"a grant beyond the message", grants(0, kLong + 1)},
      {"a grant of another part", grants(4096, 4096)},
      {"a grant of no bytes", grants(0, 0)},
  };
}

// Over the connection.
std::vector<Fault> goodbye_faults() {
  return {
      {"a second word that it receives, before goodbye",
       [](Wire& wire) {
         wire.say({'R'});
         wire.say(goodbye(0, 0));
       }},
      {"more than goodbye",
       [](Wire& wire) {
         wire.say(goodbye(0, 0));
         wire.progress();
         wire.say({0});
       }},
      {"more has arrived than was ever under way", [](Wire& wire) { wire.say(goodbye(1000, 0)); }},
      {"it has more than was ever sent", [](Wire& wire) { wire.say(goodbye(0, 1000)); }},
  };
}

void run(const Fault& fault, const char* expected) {
  CAPTURE(fault.first);
  fake::reset_verbs_fabric();
  Wire wire;
  Bytes received(kLong);
  const bool is_long = std::string_view(fault.first).starts_with("a write");
  if (!std::string_view(fault.first).starts_with("more messages"))
    wire.channel->post_recv({received.data(), is_long ? kLong : 100, {77, 0, 0, 0, {}}});
  fault.second(wire);
  wire.end_with_error();
  const std::string& message = wire.channel->status().message();
  CHECK_MESSAGE(message.find("rank 0") != std::string::npos, message);
  CHECK_MESSAGE(message.find(expected) != std::string::npos, message);
  CHECK(wire.channel->recvs_completed() == 0);
  wire.progress();
  CHECK_FALSE(wire.transport->progress());
}

TEST_CASE("a peer that breaks the protocol is an error that names it") {
  for (const Fault& fault : frame_faults()) run(fault, "broke the protocol");
  for (const Fault& fault : goodbye_faults()) run(fault, "broke the protocol");
  for (const Fault& fault : long_faults()) {
    const bool by_device = std::string_view(fault.first).ends_with("has ended");
    run(fault, by_device ? "an event of a queue" : "broke the protocol");
  }
}

TEST_CASE("a peer that leaves without what it promised is noticed") {
  fake::reset_verbs_fabric();
  for (const Bytes& last : {goodbye(1, 0), goodbye(kReceives, 0), goodbye(0, 1), Bytes(3)}) {
    Wire wire;
    wire.say(last);
    wire.wire.reset();
    wire.end_with_error();
    CHECK(wire.channel->status().message() == "connection to rank 0 closed (by that rank)");
  }
  Wire silent(false);
  silent.say(Bytes(kQpAddressBytes - 1, 1));
  silent.wire.reset();
  silent.end_with_error();
  CHECK(silent.channel->status().message() == "connection to rank 0 closed (by that rank)");
}

TEST_CASE("a peer whose words about its queue pair are none is named") {
  fake::reset_verbs_fabric();
  Wire wire(false);
  wire.say(Bytes(kQpAddressBytes, 0xff));
  wire.end_with_error();
  CHECK(wire.channel->status().message().find("rank 0 broke the protocol") != std::string::npos);
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
