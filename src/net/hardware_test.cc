#include "net/hardware.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace hetccl::net {
namespace {

namespace fs = std::filesystem;

// A sysfs of its own, in a folder that goes with it.
struct Sysfs {
  Sysfs() {
    char name[] = "/tmp/hetccl-sysfs-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    root = name;
  }
  ~Sysfs() { fs::remove_all(root); }
  Sysfs(const Sysfs&) = delete;
  Sysfs& operator=(const Sysfs&) = delete;

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  }
  /// A PCI device at `path` below devices/.
  void add_device(const std::string& path, int node, const std::string& cores) const {
    const std::string folder = "devices/" + path;
    write(folder + "/numa_node", std::to_string(node));
    write(folder + "/local_cpulist", cores);
    fs::create_directories(root / "bus/pci/devices");
    const fs::path full = root / folder;
    fs::create_symlink(full, root / "bus/pci/devices" / full.filename());
  }
  /// An interface of that device; "" for none.
  void add_interface(const std::string& name, const std::string& device, int type,
                     int speed) const {
    write("class/net/" + name + "/type", std::to_string(type));
    write("class/net/" + name + "/speed", std::to_string(speed));
    if (!device.empty())
      fs::create_symlink(root / "devices" / device, root / "class/net" / name / "device");
  }
  [[nodiscard]] Hardware look(const std::string& name) const {
    return hardware_of(name, root.string());
  }
  [[nodiscard]] Place gpu(const std::string& bus) const { return place_of_bus(bus, root.string()); }

  fs::path root;
};

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
  const Place gpu = sys.gpu("0000:1A:00.0");  // as CUDA writes it
  REQUIRE(gpu.known());
  CHECK(gpu.numa_node == 0);
  const auto to = [&](const std::string& bus) { return distance_between(gpu, sys.gpu(bus)); };
  CHECK(to("0000:1a:00.0") == kNear);
  CHECK(to("0000:1b:00.0") == kSwitch);
  CHECK(to("0000:1e:00.0") == kBridges);
  CHECK(to("0000:20:00.0") == kRoot);
  CHECK(to("0000:30:00.0") == kNode);
  CHECK(to("0000:b2:00.0") == kSystem);
  CHECK(to("0000:ff:00.0") == kSystem);  // there is none
  CHECK(distance_between({}, gpu) == kSystem);
}

TEST_CASE("a process is near the cards that are next to one of its cores") {
  Place card;
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

TEST_CASE("an interface's card: its rate, its RDMA device, and what is no card") {
  const Sysfs sys;
  sys.add_device("pci0000:00/0000:00:03.0", 0, "0-3");
  sys.add_interface("eth0", "pci0000:00/0000:00:03.0", 1, 25'000);
  sys.write("devices/pci0000:00/0000:00:03.0/infiniband/mlx5_0/ports/1/rate",
            "100 Gb/sec (4X EDR)");
  CHECK(sys.look("eth0").is_card);
  CHECK(sys.look("eth0").mbps == 25'000);
  CHECK(sys.look("eth0").rdma == "mlx5_0");
  CHECK(sys.look("eth0").beneath == "eth0");
  CHECK(sys.look("eth0").place.path == std::vector<std::string>{"pci0000:00", "0000:00:03.0"});
  sys.add_interface("ib0", "pci0000:00/0000:00:03.0", 32, -1);
  CHECK(sys.look("ib0").is_card);
  CHECK(sys.look("ib0").mbps == 100'000);  // of its port
  sys.add_interface("lo", "", 772, 0);
  CHECK_FALSE(sys.look("lo").is_card);
  sys.add_interface("virbr0", "", 1, 10'000);
  fs::create_directories(sys.root / "class/net/virbr0/bridge");
  CHECK_FALSE(sys.look("virbr0").is_card);
  sys.add_interface("tun0", "", 1, 10);
  sys.write("class/net/tun0/tun_flags", "0x1");
  CHECK_FALSE(sys.look("tun0").is_card);
  sys.add_interface("eth0.7", "", 1, -1);
  fs::create_directories(sys.root / "class/net/eth0.7/lower_eth0");
  CHECK(sys.look("eth0.7").beneath == "eth0");
  CHECK(sys.look("eth0.7").mbps == 25'000);
  CHECK(sys.look("eth0.7").place.known());
  sys.add_interface("bond0", "", 1, 50'000);
  fs::create_directories(sys.root / "class/net/bond0/bonding");
  fs::create_directories(sys.root / "class/net/bond0/lower_eth0");
  CHECK(sys.look("bond0").beneath == "bond0");
  CHECK(sys.look("bond0").place.known());
}

TEST_CASE("what sysfs says is believed within bounds") {
  const Sysfs sys;
  for (const char* name : {"", ".", "..", "../../etc", "a/b"}) {
    CHECK_FALSE(sys.look(name).is_card);
  }
  CHECK_FALSE(sys.gpu("../../../etc").known());
  CHECK_FALSE(sys.gpu("").known());
  sys.add_interface("eth0", "", 1, 2'000'000'000);
  CHECK(sys.look("eth0").mbps == 0);
  sys.write("class/net/eth0/speed", std::string(10'000, '9'));
  CHECK(sys.look("eth0").mbps == 0);
  // Interfaces that lie on each other in a circle.
  fs::create_directories(sys.root / "class/net/eth0/lower_eth1");
  fs::create_directories(sys.root / "class/net/eth1/lower_eth0");
  CHECK_FALSE(sys.look("eth0").place.known());
}

}  // namespace
}  // namespace hetccl::net
