// Which plug-in is loaded, what it says of its devices, and what is wrong where it is not used.
#include "transport/ncclnet/plugin.h"

#include <array>
#include <filesystem>

#include "fake/captured_stderr.h"
#include "fake/sysfs.h"
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
}

TEST_CASE("ranks i and i + n of two hosts with n devices use device i") {
  constexpr int n = 4;
  const std::vector<Device> devices(n);
  for (int self = 0; self < n; ++self) {
    CHECK(choose_device(devices, {}, self, self + n) == static_cast<size_t>(self));
    for (int peer = 0; peer < 3 * n; ++peer)
      CHECK(choose_device(devices, {}, self, peer) == choose_device(devices, {}, peer, self));
  }
}

TEST_CASE("a rank uses the devices nearest to its own, in turn where there are several") {
  std::vector<Device> devices(5);
  devices[1].place.path = {"pci0000:00", "0000:00:01.0"};
  devices[2].place.path = {"pci0000:80", "0000:80:01.0"};
  devices[3].place.path = {"pci0000:80", "0000:80:02.0"};
  net::BusLocation own;
  own.path = {"pci0000:00", "0000:00:07.0"};
  for (int peer = 1; peer < 6; ++peer) CHECK(choose_device(devices, own, 0, peer) == 1);
  own.path = {"pci0000:80", "0000:80:07.0"};
  CHECK(choose_device(devices, own, 0, 7) == 2);
  CHECK(choose_device(devices, own, 1, 7) == 3);
  CHECK(choose_device(devices, own, 2, 7) == 2);
  own.path = {"pci0000:c0", "0000:c0:07.0"};  // all are as far
  CHECK(choose_device(devices, own, 4, 7) == 4);
}

TEST_CASE("a channel goes by the device that the plug-in says is near") {
  const fake::Sysfs sys;
  const std::string cores = net::locate_rank("").cores;
  const std::array<std::string, 2> names = {"pci0000:00/0000:00:01.0", "pci0000:80/0000:80:01.0"};
  for (const int version : {8, 9, 12}) {
    for (const int near : {0, 1}) {
      CAPTURE(version);
      CAPTURE(near);
      fake::NetPlugin& plugin = fake::reset_net_plugin(version);
      plugin.devices = 2;
      for (const int device : {0, 1}) {
        const std::string& name = names.at(static_cast<size_t>(device));
        sys.write("devices/" + name + "/local_cpulist", device == near ? cores : "8000");
        plugin.pci_paths.push_back(sys.folder(name));
      }
      Pair pair(version);
      pair.pass(10'000);
      CHECK(plugin.listened_with == near);
      CHECK(plugin.connected_with == near);
    }
  }
}

}  // namespace hetccl::transport::ncclnet
