// Registered memory of a transport by a net plug-in: how often it is registered, until when, and by
// which way short messages go.
#include <string>
#include <utility>

#include "ncclnet/check_clean.h"
#include "ncclnet/pair.h"
#include "transport/ncclnet/frame.h"

namespace hetccl::transport::ncclnet {
namespace {

Memory memory_of(Bytes& bytes, MemoryKind kind) {
  return {.data = reinterpret_cast<std::byte*>(bytes.data()), .bytes = bytes.size(), .kind = kind};
}

// Rank 0 sends the first `bytes` of `sent` to rank 1.
struct Exchange {
  Pair& pair;
  uint64_t i = 0;
  void pass(Bytes& sent, Bytes& received, size_t bytes, bool sender, bool receiver) {
    std::fill(sent.begin(), sent.end(), static_cast<uint8_t>(i + 1));
    std::fill(received.begin(), received.end(), uint8_t{0});
    Parcel out = parcel(sent, i), in = parcel(received, i);
    out.bytes = in.bytes = bytes;
    out.registered = sender;
    in.registered = receiver;
    pair.channels[0]->post_send(out);
    pair.channels[1]->post_recv(in);
    ++i;
    pair.until([&] {
      for (const auto& channel : pair.channels)
        REQUIRE_MESSAGE(channel->status().ok(), channel->status().message());
      return pair.channels[0]->sends_completed() == i && pair.channels[1]->recvs_completed() == i;
    });
    CHECK(std::equal(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(bytes),
                     received.begin()));
  }
};

}  // namespace

TEST_CASE("registered memory of a host is registered once with each connection") {
  fake::NetPlugin& plugin = fake::reset_net_plugin(10);
  Bytes sent(5 << 20), received(5 << 20);
  {
    Pair pair(10);
    Exchange exchange{pair};
    {
      const auto out = pair.transports[0]->register_memory(memory_of(sent, MemoryKind::Host));
      const auto in = pair.transports[1]->register_memory(memory_of(received, MemoryKind::Host));
      REQUIRE(out.ok());
      REQUIRE(in.ok());
      CHECK(plugin.comms == 0);  // no connection is made for it
      for (int n = 0; n < 10; ++n) exchange.pass(sent, received, sent.size(), true, true);
      CHECK(plugin.registered == 4);  // two tokens, and the memory at each end
      CHECK(plugin.regions == 2);
    }
    CHECK(plugin.regions == 0);  // with the registration's end, though the connections go on
    exchange.pass(sent, received, sent.size(), false, false);
    CHECK(plugin.registered == 14);
    plugin.fail_registrations = 1;  // refused as a whole, it is registered by chunks
    const auto out = pair.transports[0]->register_memory(memory_of(sent, MemoryKind::Host));
    const auto in = pair.transports[1]->register_memory(memory_of(received, MemoryKind::Host));
    exchange.pass(sent, received, sent.size(), true, true);
    CHECK(plugin.fail_registrations == 0);
  }
  fake::check_clean(plugin);
}

TEST_CASE("a later registration hides those that it overlaps, until it ends") {
  fake::NetPlugin& plugin = fake::reset_net_plugin(10);
  Bytes sent(200'000), received(200'000);
  Pair pair(10);
  Exchange exchange{pair};
  exchange.pass(sent, received, sent.size(), false, false);  // makes the connection
  const auto registrations_for = [&](size_t bytes) {  // the receiver has one for each message
    const uint64_t before = plugin.registered;
    exchange.pass(sent, received, bytes, true, false);
    return plugin.registered - before;
  };
  Memory memory = memory_of(sent, MemoryKind::Host);
  const auto whole = pair.transports[0]->register_memory(memory);
  CHECK(registrations_for(200'000) == 2);
  CHECK(registrations_for(200'000) == 1);
  {
    memory.bytes = 100'000;
    const auto part = pair.transports[0]->register_memory(memory);
    CHECK(registrations_for(200'000) == 2);  // of the chunk, which goes beyond the part
    CHECK(registrations_for(100'000) == 2);
    CHECK(registrations_for(100'000) == 1);
  }
  CHECK(registrations_for(200'000) == 1);
}

TEST_CASE("messages from and to memory of GPUs go by the plug-in alone, however short") {
  fake::NetPlugin& plugin = fake::reset_net_plugin(9);
  plugin.pointers = 3;
  Bytes sent(100'000), received(100'000);
  {
    Pair pair(9);
    CHECK(pair.transports[0]->n_cards() == 1);
    Exchange exchange{pair};
    const auto out = pair.transports[0]->register_memory(memory_of(sent, MemoryKind::Device));
    const auto in = pair.transports[1]->register_memory(memory_of(received, MemoryKind::Device));
    REQUIRE(out.ok());
    REQUIRE(in.ok());
    for (const size_t bytes : {1UL, kMostWhole, kMostWhole + 1, 100'000UL}) {
      const auto moved = [&](bool sender, bool receiver) {
        const uint64_t before = plugin.gpu_bytes;
        exchange.pass(sent, received, bytes, sender, receiver);
        return plugin.gpu_bytes - before;
      };
      CHECK(moved(false, false) == 0);
      CHECK(moved(true, false) == bytes);
      CHECK(moved(false, true) == bytes);
      CHECK(moved(true, true) == 2 * bytes);
    }
  }
  fake::check_clean(plugin);
}

TEST_CASE("memory that the plug-in refuses is an error at once, and no trial passes") {
  fake::NetPlugin& plugin = fake::reset_net_plugin(9);
  plugin.pointers = 3;
  const auto transport = make_transport(9).value();
  Bytes bytes(4096);
  plugin.refuses_gpus = true;
  const auto refused = transport->register_memory(memory_of(bytes, MemoryKind::Device));
  CHECK(refused.status().code() == ErrorCode::SystemError);
  CHECK(refused.status().message().find("hetccltest0") != std::string::npos);
  CHECK_FALSE(transport->copy_by_card(0, bytes.data(), bytes.data() + 100, 100, 1000).ok());
  plugin.refuses_gpus = false;
  plugin.fails_from = plugin.tests + 1;
  const auto known = transport->register_memory(memory_of(bytes, MemoryKind::Device));
  REQUIRE(known.ok());
  const Status failed = transport->copy_by_card(0, bytes.data(), bytes.data() + 100, 100, 1000);
  CHECK(failed.message().find("ncclRemoteError") != std::string::npos);
  plugin.fails_from = 0;
  bytes[100] = 7;
  CHECK(transport->copy_by_card(0, bytes.data(), bytes.data() + 100, 100, fake::kHangMs).ok());
  CHECK(bytes[0] == 7);
  plugin.pointers = 1;
  const auto of_hosts = make_transport(9).value();
  CHECK(of_hosts->n_cards() == 0);
  CHECK(of_hosts->register_memory(memory_of(bytes, MemoryKind::Device)).value() == nullptr);
}

TEST_CASE("connections of a device with itself count towards its limit") {
  fake::NetPlugin& plugin = fake::reset_net_plugin(9);
  plugin.pointers = 3;
  plugin.max_comms = 3;  // a channel's two ends, and one of those
  Bytes sent(100, 3), received(100);
  {
    Pair pair(9);
    const auto known = [&](size_t rank) {
      return pair.transports[rank]->register_memory(memory_of(received, MemoryKind::Device));
    };
    const auto in = known(1);
    REQUIRE(in.ok());
    const std::string limit = "takes no more than 3 connections";
    CHECK(known(0).status().message().find(limit) != std::string::npos);
    pair.channels[0]->post_send(parcel(sent, 0));  // a GPU's, which takes one more to write there
    Parcel to_device = parcel(received, 0);
    to_device.registered = true;
    pair.channels[1]->post_recv(to_device);
    pair.until([&] { return !pair.channels[1]->status().ok(); });
    CHECK(pair.channels[1]->status().message().find(limit) != std::string::npos);
    pair.channels[1]->close();
    CHECK(known(0).ok());  // registrations whose uses have ended are given back
  }
  fake::check_clean(plugin);
}

TEST_CASE("a GPU has short messages of a host's that left before it went away") {
  fake::NetPlugin& plugin = fake::reset_net_plugin(9);
  plugin.pointers = 3;
  plugin.late = 20;
  Bytes sent(100, 3), received(100);
  Pair pair(9);
  const auto in = pair.transports[1]->register_memory(memory_of(received, MemoryKind::Device));
  pair.channels[0]->post_send(parcel(sent, 0));
  pair.until([&] { return pair.channels[0]->sends_completed() == 1; });
  pair.channels[0].reset();
  Parcel parcel_in = parcel(received, 0);
  parcel_in.registered = true;
  pair.channels[1]->post_recv(parcel_in);
  pair.until([&] { return pair.channels[1]->recvs_completed() == 1; });
  CHECK(received == sent);
}

}  // namespace hetccl::transport::ncclnet
