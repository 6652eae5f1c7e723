// On which of a host's memories (NUMA nodes) new memory is to lie.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace hetccl {

/// The node that a PCI device ("0000:1B:00.0") is attached to; -1: unknown, or there is but one.
int numa_node_of(std::string_view pci_address, const std::string& devices = "/sys/bus/pci/devices");

/// While it lives, memory that the calling thread touches first lies on `node`, if that has some
/// left; then what held before holds again. Does nothing for -1, or where the system forbids it.
class OnNode {
 public:
  explicit OnNode(int node);
  ~OnNode();
  OnNode(const OnNode&) = delete;
  OnNode& operator=(const OnNode&) = delete;

 private:
  static constexpr size_t kMaxNodes = 1024;
  using Nodes = std::array<size_t, kMaxNodes / (8 * sizeof(size_t))>;  // words of the machine's
  bool set_ = false;
  int policy_before_ = 0;
  Nodes nodes_before_{};
};

}  // namespace hetccl
