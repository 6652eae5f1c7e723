// transport/verbs against a peer that knows the secret, has a queue pair and breaks the protocol:
// an error that names it, and no memory is reached that was not granted.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>
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
  explicit Wire(bool meets = true, bool greets = true) {
    Config config;
    config.socket_ifname = "=lo";
    config.rdma_timeout = 1;
    transport = make_verbs_transport(fake::verbs_api(), config, Log{LogLevel::Error, -1}).value();
    address = transport->listen().value();
    port = find_ports(fake::verbs_api(), Config()).value().front();
    bool again = false;
    region = port.device
                 ->register_memory(memory.data(), memory.size(),
                                   abi::kLocalWrite | abi::kRemoteWrite, &again)
                 .value();
    queue = QueuePair::create(port, {.sends = kSends, .receives = kReceives}).value();
    for (uint32_t i = 0; i < kReceives; ++i) REQUIRE(queue->post_receive(i, at(i)).ok());
    fake::Thread dialer([this] { dial(); });
    channel = transport->connect({77, 1, 0}, address, secret, fake::kHangMs).value();
    dialer.join();
    if (greets) greet();
    if (meets) meet();
  }
  void dial() {
    const auto endpoint = tcp::decode(decode(address).value().listener);
    auto fd = net::connect(endpoint.value().addresses, soon());
    REQUIRE(fd.ok());
    const net::Hello hello{tcp::kPurposeOfVerbs, 0, 77, 0, 1};
    wire = net::dial_handshake(std::move(*fd), hello, {secret}, nullptr, soon()).value();
  }
  void greet() {
    Greeting greeting{1};
    REQUIRE(net::send_all(wire.fd(), greeting.data(), greeting.size(), soon()).ok());
    REQUIRE(net::recv_all(wire.fd(), greeting.data(), greeting.size(), soon()).ok());
    progress();
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
      {"a grant of a message that travels whole",
       [](Wire& wire) {
         static Bytes data(100);
         fake::verbs_fabric().holds_sends = true;
         wire.channel->post_send({data.data(), data.size(), {77, 0, 0, 0, {}}});
         wire.progress();
         wire.send({FrameKind::Grant, 0}, grant({0, 0, 100, 4096, 1, 0}));
       }},
      {"a grant beyond the message", grants(0, kLong + 1)},
      {"a grant of another part", grants(4096, 4096)},
      {"a grant of no bytes", grants(0, 0)},
  };
}

// Faults over the connection.
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
  Wire mute(false, false);
  mute.say(Bytes(sizeof(Greeting) - 1));
  mute.wire.reset();
  mute.end_with_error();
  CHECK(mute.channel->status().message() == "connection to rank 0 closed (by that rank)");
  Wire silent(false);
  silent.say(Bytes(kQpAddressBytes - 1, 1));
  silent.wire.reset();
  silent.end_with_error();
  CHECK(silent.channel->status().message() == "connection to rank 0 closed (by that rank)");
}

TEST_CASE("a peer whose words about its queue pair, or its ports, are none is named") {
  fake::reset_verbs_fabric();
  Wire far(false, false);
  far.say(Bytes(sizeof(Greeting), 0xff));
  far.end_with_error();
  CHECK(far.channel->status().message().find("rank 0 broke the protocol") != std::string::npos);
  Wire wire(false);
  wire.say(Bytes(kQpAddressBytes, 0xff));
  wire.end_with_error();
  CHECK(wire.channel->status().message().find("rank 0 broke the protocol") != std::string::npos);
}

// A peer at random: whatever it does, this rank's memory beside the granted stays as it is, and an
// error names the peer.
class Stranger {
 public:
  explicit Stranger(uint32_t seed) : random_(seed) {
    for (auto* buffer : {&received_, &short_}) {
      std::fill(buffer->begin(), buffer->end(), kGuard);
      wire_.channel->post_recv({buffer->data() + kEdge, buffer->size() - 2 * kEdge, info()});
    }
    for (auto* buffer : {&sent_, &short_sent_})
      wire_.channel->post_send({buffer->data(), buffer->size(), info()});
  }
  void act() {
    abi::Wc completion{};
    while (wire_.queue->poll({&completion, 1}) == 1) take(completion);
    const size_t what = pick(12);
    if (what < 4)
      send(pick(20) == 0 ? kKinds[pick(4)] : right_kind());
    else if (what < 9 && !granted_.empty())
      write(granted_[pick(8) == 0 ? pick(granted_.size()) : granted_.size() - 1]);
    else if (what == 9 && pick(60) == 0)
      (void)net::send_all(wire_.wire.fd(), &random_, 1 + pick(20), soon()).ok();
    for (size_t i = pick(80); i > 0; --i) wire_.transport->progress();
  }
  void check() const {
    for (const auto* buffer : {&received_, &short_}) {
      CHECK(std::all_of(buffer->begin(), buffer->begin() + kEdge, is_guard));
      CHECK(std::all_of(buffer->end() - kEdge, buffer->end(), is_guard));
    }
    const Status& status = wire_.channel->status();
    CHECK((status.ok() || status.message().find("rank 0") != std::string::npos));
  }
  [[nodiscard]] bool ended() const { return !wire_.channel->status().ok(); }
  [[nodiscard]] uint64_t received() const { return wire_.channel->recvs_completed(); }
  [[nodiscard]] uint64_t sent() const { return wire_.channel->sends_completed(); }

 private:
  static constexpr FrameKind kKinds[] = {FrameKind::Whole, FrameKind::Long, FrameKind::Grant,
                                         FrameKind::Credits};
  static constexpr uint8_t kGuard = 0xa5;
  static constexpr ptrdiff_t kEdge = 4096;
  static bool is_guard(uint8_t byte) { return byte == kGuard; }
  static MessageInfo info() { return {77, 0, 0, 0, {}}; }
  size_t pick(size_t n) { return random_() % n; }
  void take(const abi::Wc& completion) {
    if (completion.status != 0 || completion.id >= kReceives) return;
    const uint8_t* frame = wire_.memory.data() + completion.id * kSlotBytes;
    if (completion.opcode == abi::kWcRecv && completion.bytes == kFrameBytes + kGrantBytes)
      granted_.push_back(decode_grant(frame + kFrameBytes));
    if (wire_.channel->status().ok())
      (void)wire_.queue->post_receive(completion.id, again(completion));
  }
  abi::Sge again(const abi::Wc& completion) {
    return wire_.at(static_cast<uint32_t>(completion.id));
  }
  bool errs() { return pick(25) == 0; }
  FrameKind right_kind() {
    if (next_ == 0) return FrameKind::Long;
    if (next_ == 1) return FrameKind::Whole;
    return offered_ < kLong ? FrameKind::Grant : FrameKind::Credits;
  }
  void send(FrameKind kind) {
    const uint32_t credits = errs() ? 2 : 0;
    if (kind == FrameKind::Credits) return wire_.send({kind, credits}, {});
    if (kind == FrameKind::Grant) return wire_.send({kind, credits}, offer());
    const uint64_t number = errs() ? pick(5) : next_++;
    if (kind == FrameKind::Long) return wire_.send({kind, credits}, header(number, kLong, 0));
    wire_.send({kind, credits}, header(number, 100, errs() ? pick(200) : 100));
  }
  Bytes offer() {
    const size_t bytes = errs() ? pick(kLong) : std::min(kLong - offered_, kChunkBytes);
    const size_t offset = errs() ? pick(kLong) : offered_;
    offered_ = std::min(kLong, offered_ + bytes);
    return grant({errs() ? pick(3) : 0, offset, bytes,
                  reinterpret_cast<uintptr_t>(wire_.memory.data()), wire_.region.remote_key(),
                  static_cast<uint32_t>(pick(kGrants + (errs() ? 1 : 0)))});
  }
  void write(const Grant& to) {
    const size_t bytes = errs() ? pick(to.bytes + 5000) : to.bytes;
    wire_.write(to, std::min(bytes, kChunkBytes), errs() ? kGrants : to.index);
  }

  Bytes received_ = Bytes(kLong + 2 * kEdge), short_ = Bytes(100 + 2 * kEdge);
  Bytes sent_ = Bytes(kLong), short_sent_ = Bytes(50);
  std::mt19937 random_;
  std::vector<Grant> granted_;
  uint64_t next_ = 0;
  size_t offered_ = 0;  // of the long message that this rank sends
  Wire wire_;
};

TEST_CASE("a peer that does anything at all reaches no memory beside its grants") {
  uint64_t ended = 0, received = 0, sent = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    fake::reset_verbs_fabric(seed);
    Stranger stranger(seed);
    for (int i = 0; i < 60 && !stranger.ended(); ++i) stranger.act();
    stranger.check();
    ended += stranger.ended() ? 1 : 0;
    received += stranger.received();
    sent += stranger.sent();
  }
  CHECK(ended > 50);
  CHECK(received > 10);
  CHECK(sent > 10);
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
