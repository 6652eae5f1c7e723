// Chooses the NUMA node of new memory.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace hetccl {

/// Returns the node that a PCI device ("0000:1B:00.0") is attached to; -1: unknown, or there is
/// only one.
int numa_node_of(std::string_view pci_address, const std::string& devices = "/sys/bus/pci/devices");

/// While it lives, memory that the calling thread touches first comes from `node`, if that has
/// room; afterwards the previous policy holds. Does nothing for -1, or if the system forbids it.
class OnNode {
 public:
  explicit OnNode(int node);
  ~OnNode();
  OnNode(const OnNode&) = delete;
  OnNode& operator=(const OnNode&) = delete;

 private:
  static constexpr size_t kMaxNodes = 1024;
  using Nodes = std::array<size_t, kMaxNodes / (8 * sizeof(size_t))>;  // machine words
  bool set_ = false;
  int policy_before_ = 0;
  Nodes nodes_before_{};
};

}  // namespace hetccl
