// Which plug-in is loaded, what it says of its devices, and what is wrong where it is not used.
#include "transport/ncclnet/plugin.h"

#include <filesystem>

#include "fake/captured_stderr.h"
#include "ncclnet/pair.h"
#include "transport/ncclnet/fabric.h"
#include "transport/ncclnet/plugin_log.h"

namespace hetccl::transport::ncclnet {
namespace {

std::string why_not(const std::string& plugin) {
  Config config;
  config.net_plugin = plugin;
  const auto made = make_ncclnet_transport(config, Log{LogLevel::Error, -1});
  return made.ok() ? "" : made.status().message();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("each version is loaded, and its devices are described") {
  for (int version = 8; version <= 12; ++version) {
    CAPTURE(version);
    fake::NetPlugin& plugin = fake::reset_net_plugin(version);
    plugin.devices = 2;
    plugin.pointers = 7;
    const auto lines = make_transport(version).value()->describe();
    REQUIRE(lines.size() == 2);
    CHECK(lines.front() ==
          "hetccltest0: 25 Gbit/s, port 1, latency 2.0 us, 1000 connections; memory: host, CUDA, "
          "DMA-BUF; hetccltest (" +
              fake::net_plugin_path(version) + ", interface " + std::to_string(version) + ")");
    CHECK(make_transport(version).ok());  // started once: the plug-in refuses a second init
    CHECK(plugin.violations == 0);
  }
}

TEST_CASE("what is missing is named") {
  CHECK(has(why_not("nowhere"), "HETCCL_NET_PLUGIN=nowhere"));
  CHECK(has(why_not("nowhere"), "libnccl-net-nowhere.so"));
  CHECK_FALSE(has(why_not("/nowhere/libnccl-net.so"), "libnccl-net-"));
  CHECK(has(why_not("libm.so.6"), "none of ncclNetPlugin_v8 to ncclNetPlugin_v12"));
  fake::NetPlugin& plugin = fake::reset_net_plugin(9);
  plugin.devices = 0;
  CHECK(has(why_not(fake::net_plugin_path(9)), "shows no device"));
  plugin.devices = 1;
  plugin.pointers = 2;
  CHECK(has(why_not(fake::net_plugin_path(9)), "takes no memory of hosts"));
  plugin.pointers = 1;
  plugin.max_bytes = 100;
  CHECK(has(why_not(fake::net_plugin_path(9)), "no more than 100 bytes"));
  plugin.max_bytes = 4096;
  plugin.max_comms = 0;
  CHECK(has(why_not(fake::net_plugin_path(9)), "takes no connection"));
}

TEST_CASE("a plug-in's lines go to hetccl's log, at its level") {
  set_plugin_log(Log{LogLevel::Info});
  const std::string log = fake::stderr_of([] {
    log_of_plugin(abi::kLogWarn, 0, "f", 1, "no %s of %d", "port", 3);
    log_of_plugin(abi::kLogInfo, 0, "f", 1, "an\nother");
    log_of_plugin(abi::kLogTrace, 0, "f", 1, "a trace");
  });
  CHECK(has(log, "hetccl warn: net plug-in: no port of 3"));
  CHECK(has(log, "hetccl info: net plug-in: an"));
  CHECK_FALSE(has(log, "a trace"));
  set_plugin_log(Log{LogLevel::Warn});
}

TEST_CASE("an address tells whether both ends have the same network") {
  fake::reset_net_plugin(8);
  const auto transport = make_transport(8).value();
  const Address address = transport->listen().value();
  CHECK(transport->can_reach(address));
  Endpoint endpoint = decode(address).value();
  CHECK(endpoint.network == "hetccltest");
  endpoint.network = "another";
  CHECK_FALSE(transport->can_reach(encode(endpoint)));
  CHECK_FALSE(transport->can_reach({}));
  auto refused = transport->connect({5, 0, 1}, encode(endpoint), Bytes(32, 1), 60);
  CHECK(refused.status().code() == ErrorCode::Unsupported);
  CHECK(has(refused.status().message(), "another"));
  for (size_t cut = 0; cut < address.size() && cut < 20; ++cut)
    CHECK((cut > 13 || !decode(Address(address.begin(), address.begin() + cut)).ok()));
  // Both ends of a pair find the same device where they have equally many.
  for (int self = 0; self < 5; ++self)
    for (int peer = 0; peer < 5; ++peer)
      CHECK(choose_device(4, self, peer) == choose_device(4, peer, self));
}

}  // namespace hetccl::transport::ncclnet
