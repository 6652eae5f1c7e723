#include "net/hardware.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "fake/sysfs.h"

namespace hetccl::net {
namespace {

namespace fs = std::filesystem;

using fake::Sysfs;

Hardware look(const Sysfs& sys, const std::string& name) {
  return hardware_of(name, sys.root.string());
}
BusLocation gpu(const Sysfs& sys, const std::string& bus) {
  return locate_bus(bus, sys.root.string());
}

const std::string kSwitch0 = "pci0000:17/0000:17:01.0/0000:18:00.0/";
const std::string kSwitch1 = "pci0000:b0/0000:b0:01.0/0000:b1:00.0/";

TEST_CASE("a card's distance from a GPU follows the bridges between them, and NUMA nodes") {
  const Sysfs sys;
  sys.add_device(kSwitch0 + "0000:19:00.0/0000:1a:00.0", 0, "0-3");  // a GPU
  sys.add_device(kSwitch0 + "0000:19:01.0/0000:1b:00.0", 0, "0-3");
  sys.add_device(kSwitch0 + "0000:19:02.0/0000:1c:00.0/0000:1d:00.0/0000:1e:00.0", 0, "0-3");
  sys.add_device("pci0000:17/0000:17:02.0/0000:20:00.0", 0, "0-3");
  sys.add_device("pci0000:30/0000:30:00.0", 0, "0-3");
  sys.add_device(kSwitch1 + "0000:b2:00.0", 1, "4-7");
  const BusLocation device = gpu(sys, "0000:1A:00.0");  // CUDA's spelling
  REQUIRE(device.known());
  CHECK(device.numa_node == 0);
  const auto to = [&](const std::string& bus) { return distance_between(device, gpu(sys, bus)); };
  CHECK(to("0000:1a:00.0") == kNear);
  CHECK(to("0000:1b:00.0") == kSwitch);
  CHECK(to("0000:1e:00.0") == kBridges);
  CHECK(to("0000:20:00.0") == kRoot);
  CHECK(to("0000:30:00.0") == kNode);
  CHECK(to("0000:b2:00.0") == kSystem);
  CHECK(to("0000:ff:00.0") == kSystem);  // there is none
  CHECK(distance_between({}, device) == kSystem);
}

TEST_CASE("a process is near the cards that are next to one of its cores") {
  BusLocation card;
  card.cores = "0-3,8";
  CHECK(distance_from_cores("2-5", card) == kNear);
  CHECK(distance_from_cores("8", card) == kNear);
  CHECK(distance_from_cores("4-7,9", card) == kSystem);
  CHECK(distance_from_cores("", card) == kNear);
  for (const char* wrong : {"x", "5-2", "1-", "-1", "99999999", "0,,"}) {
    card.cores = wrong;
    CHECK(distance_from_cores("7", card) == kNear);  // unknown
  }
  card.cores = "";
  CHECK(distance_from_cores("7", card) == kNear);
}

TEST_CASE("a folder of sysfs, or a link to one, has its device's place") {
  const Sysfs sys;
  sys.add_device("pci0000:00/0000:00:03.0", 0, "0-3");
  const BusLocation place = locate_folder(sys.folder("pci0000:00/0000:00:03.0"));
  CHECK(place.path == std::vector<std::string>{"pci0000:00", "0000:00:03.0"});
  CHECK(place.cores == "0-3");
  CHECK(locate_folder((sys.root / "bus/pci/devices/0000:00:03.0").string()).path == place.path);
  for (const char* none : {"", "/", "/nowhere", "relative"})
    CHECK_FALSE(locate_folder(none).known());
}

TEST_CASE("a rank on the host is where its cores are") {
  BusLocation card;
  card.path = {"pci0000:00", "0000:00:03.0"};
  const BusLocation process = locate_rank("");
  CHECK_FALSE(process.known());
  card.cores = process.cores;
  CHECK(distance_between(process, card) == kNear);
  card.cores = "8000-8001";
  CHECK(distance_between(process, card) == kSystem);
}

TEST_CASE("an interface's card: its rate, its RDMA device, and what is no card") {
  const Sysfs sys;
  sys.add_device("pci0000:00/0000:00:03.0", 0, "0-3");
  sys.add_interface("eth0", "pci0000:00/0000:00:03.0", 1, 25'000);
  sys.write("devices/pci0000:00/0000:00:03.0/infiniband/mlx5_0/ports/1/rate",
            "100 Gb/sec (4X EDR)");
  CHECK(look(sys, "eth0").is_card);
  CHECK(look(sys, "eth0").mbps == 25'000);
  CHECK(look(sys, "eth0").rdma == "mlx5_0");
  CHECK(look(sys, "eth0").beneath == "eth0");
  CHECK(look(sys, "eth0").place.path == std::vector<std::string>{"pci0000:00", "0000:00:03.0"});
  sys.add_interface("ib0", "pci0000:00/0000:00:03.0", 32, -1);
  CHECK(look(sys, "ib0").is_card);
  CHECK(look(sys, "ib0").mbps == 100'000);  // the port's rate
  sys.add_interface("lo", "", 772, 0);
  CHECK_FALSE(look(sys, "lo").is_card);
  sys.add_interface("virbr0", "", 1, 10'000);
  fs::create_directories(sys.root / "class/net/virbr0/bridge");
  CHECK_FALSE(look(sys, "virbr0").is_card);
  sys.add_interface("tun0", "", 1, 10);
  sys.write("class/net/tun0/tun_flags", "0x1");
  CHECK_FALSE(look(sys, "tun0").is_card);
  sys.add_interface("eth0.7", "", 1, -1);
  fs::create_directories(sys.root / "class/net/eth0.7/lower_eth0");
  CHECK(look(sys, "eth0.7").beneath == "eth0");
  CHECK(look(sys, "eth0.7").mbps == 25'000);
  CHECK(look(sys, "eth0.7").place.known());
  sys.add_interface("bond0", "", 1, 50'000);
  fs::create_directories(sys.root / "class/net/bond0/bonding");
  fs::create_directories(sys.root / "class/net/bond0/lower_eth0");
  CHECK(look(sys, "bond0").beneath == "bond0");
  CHECK(look(sys, "bond0").place.known());
}

TEST_CASE("what sysfs says is believed within bounds") {
  const Sysfs sys;
  for (const char* name : {"", ".", "..", "../../etc", "a/b"}) {
    CHECK_FALSE(look(sys, name).is_card);
  }
  CHECK_FALSE(gpu(sys, "../../../etc").known());
  CHECK_FALSE(gpu(sys, "").known());
  sys.add_interface("eth0", "", 1, 2'000'000'000);
  CHECK(look(sys, "eth0").mbps == 0);
  sys.write("class/net/eth0/speed", std::string(10'000, '9'));
  CHECK(look(sys, "eth0").mbps == 0);
  // Interfaces stacked on each other in a circle.
  fs::create_directories(sys.root / "class/net/eth0/lower_eth1");
  fs::create_directories(sys.root / "class/net/eth1/lower_eth0");
  CHECK_FALSE(look(sys, "eth0").place.known());
}

}  // namespace
}  // namespace hetccl::net
