// Jobs whose ranks are hosts of their own and meet by a net plug-in: hetccl's test plug-in, or that
// of HETCCL_TEST_NET_PLUGIN.
#include <doctest/doctest.h>

#include <cstdlib>
#include <vector>

#include "base/cores.h"
#include "comm/over_hosts.h"
#include "comm/ranks.h"
#include "fake/net_plugin.h"
#include "fake/sysfs.h"
#include "ncclnet/check_clean.h"

namespace hetccl {
namespace {

using comm::Ranks;
using fake::Case;

std::string plugin() {
  const char* given = std::getenv("HETCCL_TEST_NET_PLUGIN");
  return given != nullptr ? given : fake::net_plugin_path(11);
}

std::vector<Config> hosts(size_t n) {
  std::vector<Config> configs(n);
  for (size_t i = 0; i < n; ++i) {
    configs[i].host_id = format("host%zu", i);
    configs[i].net_plugin = plugin();
    configs[i].transport = "ncclnet";
    configs[i].slice_bytes = 64 << 10;
  }
  return configs;
}

}  // namespace

TEST_CASE("collectives over 2 and 4 hosts have the right values") {
  fake::NetPlugin& fakes = fake::reset_net_plugin(11);
  comm::check_values_over_hosts(hosts);
  if (plugin() != fake::net_plugin_path(11)) return;
  CHECK(fakes.sent_bytes > 1'000'000);
  fake::check_clean(fakes);
}

TEST_CASE("clusters of two ranks meet by a plug-in, too") {
  fake::NetPlugin& fakes = fake::reset_net_plugin(11);
  fakes.works_one_in = 2;
  fakes.late = 3;
  std::vector<Config> configs = hosts(4);
  configs[1].host_id = configs[0].host_id;
  configs[3].host_id = configs[2].host_id;
  const std::vector<std::string> labels = {"A", "A", "B", "B"};
  Ranks ranks(labels, configs);
  std::mt19937_64 random(5);
  for (int i = 0; i < 30; ++i) {
    const Case test = fake::random_case(random, labels, 30'000);
    INFO(test.text());
    REQUIRE(comm::run(ranks, test, i % 2 == 0) == "");
  }
}

TEST_CASE("ranks on hosts use the device that is next to their cores") {
  const fake::Sysfs sys;
  fake::NetPlugin& fakes = fake::reset_net_plugin(10);
  sys.add_device("pci0000:00/0000:00:01.0", 0, "8000");
  sys.add_device("pci0000:80/0000:80:01.0", 1, list_of_cores());
  fakes.devices = 2;
  fakes.pci_paths = {sys.folder("pci0000:00/0000:00:01.0"), sys.folder("pci0000:80/0000:80:01.0")};
  std::vector<Config> configs = hosts(2);
  for (Config& config : configs) config.net_plugin = fake::net_plugin_path(10);
  {
    Ranks ranks({"0", "1"}, configs);
    CHECK(comm::run(ranks, comm::all_reduce(ranks, 300'001), false) == "");
  }
  CHECK(fakes.listened_with == 1);
  CHECK(fakes.connected_with == 1);
}

TEST_CASE("a host without the plug-in is reached over TCP, unless the plug-in is asked for") {
  fake::reset_net_plugin(11);
  std::vector<Config> configs = hosts(3);
  for (Config& config : configs) config.transport.clear();
  configs[2].net_plugin.clear();
  const std::vector<std::string> labels = {"0", "1", "2"};
  Ranks ranks(labels, configs);
  CHECK(comm::run(ranks, comm::all_reduce(ranks, 300'001), false) == "");
}

}  // namespace hetccl
