// Finds the place of a NIC or a GPU, and the kind of an interface, in sysfs. Everything is bounded
// and checked; what cannot be read is unknown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hetccl::net {

/// A location on the host's buses. A process's location only has cores.
struct BusLocation {
  std::vector<std::string> path;  ///< PCI, from the root: "pci0000:00", "0000:00:01.0", ...
  int numa_node = -1;             ///< -1: unknown
  std::string cores;              ///< next to it: "0-15,32-47"; "": unknown
  [[nodiscard]] bool known() const { return !path.empty(); }
};

/// The distance of two devices of a host, in NCCL's order.
enum Distance : int {
  kNear = 0,     ///< nothing is between them, or there is only one NIC
  kSwitch = 1,   ///< one PCIe switch
  kBridges = 2,  ///< several PCIe bridges
  kRoot = 3,     ///< the root complex
  kNode = 4,     ///< the interconnect within a NUMA node
  kSystem = 5,   ///< between NUMA nodes, or a place is unknown
};

/// The kind of an interface.
struct Hardware {
  BusLocation place;     ///< of a bond: its first NIC's
  std::string beneath;   ///< the interface that carries it, as eth0 of eth0.100; else its own name
  std::string rdma;      ///< its RDMA device, "mlx5_0"; "": none
  int64_t mbps = 0;      ///< as its driver states; 0: unknown
  bool is_card = false;  ///< no bridge, tunnel or loopback
  bool is_bond = false;  ///< of several NICs
};

/// `sys` is the mount point of sysfs.
Hardware hardware_of(const std::string& interface, const std::string& sys = "/sys");
/// Finds the PCI device with that address, "0000:3b:00.0".
BusLocation locate_bus(std::string_view pci_address, const std::string& sys = "/sys");
/// Finds the PCI device of a folder in sysfs, which may be a link.
BusLocation locate_folder(const std::string& folder);
/// Finds a rank's device. "": the rank is on the host, at the cores that it may use.
BusLocation locate_rank(std::string_view pci_address);

/// `device` may be a process.
[[nodiscard]] Distance distance_between(const BusLocation& device, const BusLocation& card);
/// Returns the distance from the cores of a process, "0-3,8": near if one of them is next to the
/// NIC.
[[nodiscard]] Distance distance_from_cores(std::string_view cores, const BusLocation& card);

}  // namespace hetccl::net
