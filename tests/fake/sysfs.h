// A sysfs of a test's own.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace hetccl::fake {

/// Files as the kernel has them in /sys, in a folder that goes with this.
struct Sysfs {
  Sysfs() {
    char name[] = "/tmp/hetccl-sysfs-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    root = name;
  }
  ~Sysfs() { std::filesystem::remove_all(root); }
  Sysfs(const Sysfs&) = delete;
  Sysfs& operator=(const Sysfs&) = delete;

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  }
  /// A PCI device at `path` below devices/.
  void add_device(const std::string& path, int node, const std::string& cores) const {
    const std::string folder = "devices/" + path;
    write(folder + "/numa_node", std::to_string(node));
    write(folder + "/local_cpulist", cores);
    std::filesystem::create_directories(root / "bus/pci/devices");
    const std::filesystem::path full = root / folder;
    std::filesystem::create_symlink(full, root / "bus/pci/devices" / full.filename());
  }
  /// An interface of that device; "" for none.
  void add_interface(const std::string& name, const std::string& device, int type,
                     int speed) const {
    write("class/net/" + name + "/type", std::to_string(type));
    write("class/net/" + name + "/speed", std::to_string(speed));
    if (!device.empty())
      std::filesystem::create_symlink(root / "devices" / device,
                                      root / "class/net" / name / "device");
  }
  /// An RDMA device of that device. Returns its folder.
  [[nodiscard]] std::string add_rdma(const std::string& name, const std::string& device) const {
    const std::filesystem::path folder = root / "class/infiniband" / name;
    std::filesystem::create_directories(folder);
    std::filesystem::create_symlink(root / "devices" / device, folder / "device");
    return folder.string();
  }
  [[nodiscard]] std::string folder(const std::string& device) const {
    return (root / "devices" / device).string();
  }

  std::filesystem::path root;
};

}  // namespace hetccl::fake
