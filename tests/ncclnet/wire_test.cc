// transport/ncclnet against a peer that knows the secret and breaks the protocol of the control
// connection: an error that names it.
#include "ncclnet/pair.h"
#include "net/auth.h"
#include "transport/ncclnet/fabric.h"
#include "transport/ncclnet/frame.h"
#include "transport/tcp/acceptor.h"
#include "transport/tcp/address.h"

namespace hetccl::transport::ncclnet {
namespace {

TimePoint soon() {
  return steady_clock().now() + fake::kHang;
}

// Rank 1 is the transport; rank 0 is written out by the test.
struct Wire {
  explicit Wire(int64_t liveness_ms = 5'000) {
    fake::reset_net_plugin(8);
    Config config;
    config.liveness_ms = liveness_ms;
    transport = make_transport(8, config).value();
    const Address address = transport->listen().value();
    fake::Thread dialer([&] {
      const auto endpoint = tcp::decode(decode(address).value().listener);
      auto fd = net::connect(endpoint.value().addresses, soon());
      REQUIRE(fd.ok());
      const net::Hello hello{tcp::kPurposeOfNcclNet, 0, 77, 0, 1};
      peer = net::dial_handshake(std::move(*fd), hello, {secret}, nullptr, soon()).value();
    });
    channel = transport->connect({77, 1, 0}, address, secret, fake::kHangMs).value();
    dialer.join();
  }
  void send(const Frame& frame, const Bytes& rest = {}) {
    Bytes bytes(kFrameBytes);
    encode(frame, bytes.data());
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    REQUIRE(net::send_all(peer.fd(), bytes.data(), bytes.size(), soon()).ok());
  }
  void until(const std::function<bool()>& done) {
    for (const TimePoint end = soon(); !done(); transport->progress())
      REQUIRE(steady_clock().now() < end);
  }
  const Bytes secret = Bytes(32, 5);
  Bytes received = Bytes(100), sent = Bytes(100'000);
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Channel> channel;
  net::Wire peer;
};

Bytes header(uint64_t number, uint64_t sequence, uint64_t total, size_t payload) {
  Bytes bytes(kHeaderBytes + payload);
  encode(Header{number, 0, total, total, {77, sequence, 0, 0, {}}}, bytes.data());
  return bytes;
}

Bytes hello_of(size_t chunk_bytes) {
  Bytes bytes(kHelloBytes);
  Hello hello;
  hello.chunk_bytes = chunk_bytes;
  encode(hello, bytes.data());
  return bytes;
}

struct Break {
  const char* said;  // in the error
  std::function<void(Wire&)> act;
};

// The peer has sent all before the transport looks at any of it.
const std::vector<Break>& breaks() {
  static const Frame whole{FrameKind::Whole, 0, 0}, of_long{FrameKind::Long, 0, kMostChunk},
      listen{FrameKind::Listen, 0, 0}, grant{FrameKind::Grant, 0, 0};
  static const auto listens = [](Wire& wire) { wire.send(listen, hello_of(kMostChunk)); };
  static const std::vector<Break> all = {
      {"no frame of this version",
       [](Wire& wire) { wire.send({static_cast<FrameKind>(9), 0, 0}); }},
      {"not a message of this version", [](Wire& wire) { wire.send(whole, Bytes(200, 0xee)); }},
      {"do not fit", [](Wire& wire) { wire.send(whole, header(0, 0, kMostWhole + 1, 0)); }},
      {"do not fit", [](Wire& wire) { wire.send(of_long, header(0, 0, 0, 0)); }},
      {"too many credits", [](Wire& wire) { wire.send({FrameKind::Credits, 2, 0}); }},
      {"grants a message", [](Wire& wire) { wire.send(grant); }},  // before it listens
      {"receives chunks of 1 bytes", [](Wire& wire) { wire.send(listen, hello_of(1)); }},
      {"out of order", [](Wire& wire) { wire.send(whole, header(3, 0, 100, 100)); }},
      {"as collective 3", [](Wire& wire) { wire.send(whole, header(0, 3, 100, 100)); }},
      {"sends chunks of 0 bytes",
       [](Wire& wire) { wire.send({FrameKind::Long, 0, 0}, header(0, 0, 1 << 20, 0)); }},
      {"listens twice", [](Wire& wire) { listens(wire), listens(wire); }},
      {"grants a message that it was not sent",
       [](Wire& wire) { listens(wire), wire.send({FrameKind::Grant, 0, 1}); }},
      {"grants a message", [](Wire& wire) { listens(wire), wire.send(grant), wire.send(grant); }},
      {"ncclInvalidArgument", listens},  // the plug-in refuses its handle
      {"more messages than it may", [](Wire& wire) {
         for (uint64_t i = 0; i <= kCredits; ++i) wire.send(whole, header(i, i, 10, 10));
       }}};
  return all;
}

}  // namespace

TEST_CASE("a peer that breaks the protocol is an error that names it") {
  for (const auto& [said, act] : breaks()) {
    CAPTURE(said);
    Wire wire;
    // A receive would take messages out of the inbox, which has room for no more.
    if (&act != &breaks().back().act) wire.channel->post_recv(parcel(wire.received, 0));
    wire.channel->post_send(parcel(wire.sent, 0));
    act(wire);
    wire.until([&] { return !wire.channel->status().ok(); });
    const Status& status = wire.channel->status();
    for (const char* part : {"rank 0", said})
      CHECK_MESSAGE(status.message().find(part) != std::string::npos, status.message());
    CHECK(wire.channel->recvs_completed() == 0);
    wire.transport->progress();
    CHECK_FALSE(wire.transport->progress());
  }
}

TEST_CASE("a message that trickles in byte by byte is a message") {
  Wire wire;
  wire.channel->post_recv(parcel(wire.received, 0));
  Bytes all(kFrameBytes);
  encode(Frame{FrameKind::Whole, 0, 0}, all.data());
  Bytes message = header(0, 0, 100, 100);
  std::fill(message.begin() + kHeaderBytes, message.end(), uint8_t{7});
  all.insert(all.end(), message.begin(), message.end());
  for (const uint8_t& byte : all) {
    CHECK(wire.channel->recvs_completed() == 0);
    REQUIRE(net::send_all(wire.peer.fd(), &byte, 1, soon()).ok());
    wire.transport->progress();
  }
  wire.until([&] { return wire.channel->recvs_completed() == 1; });
  CHECK(wire.received == Bytes(100, 7));
}

TEST_CASE("a peer that goes away with a false promise of chunks is lost all the same") {
  Wire wire(300);
  wire.received.resize(1 << 20);
  wire.channel->post_recv(parcel(wire.received, 0));
  wire.send({FrameKind::Long, 0, kMostChunk}, header(0, 0, 1 << 20, 0));
  wire.send({FrameKind::Goodbye, 0, 1});
  wire.peer.reset();
  wire.until([&] { return !wire.channel->status().ok(); });
  CHECK(wire.channel->status().code() == ErrorCode::RemoteError);
  CHECK(wire.channel->status().message().find("rank 0") != std::string::npos);
}

}  // namespace hetccl::transport::ncclnet
