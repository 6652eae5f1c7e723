#include "base/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>

namespace hetccl {

int numa_node_of(std::string_view pci_address, const std::string& devices) {
  constexpr size_t kLongest = 16;
  std::string name(pci_address.substr(0, kLongest));
  for (char& c : name) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool known = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == ':' || c == '.';
    if (!known) return -1;
  }
  std::ifstream file(devices + "/" + name + "/numa_node");
  int node = -1;
  return file >> node ? std::max(node, -1) : -1;
}

// Uses raw system calls, because glibc has no wrappers.
OnNode::OnNode(int node) {
  if (node < 0 || static_cast<size_t>(node) >= kMaxNodes) return;
  // The system uses one bit less than it is told.
  if (syscall(SYS_get_mempolicy, &policy_before_, nodes_before_.data(), kMaxNodes + 1, nullptr,
              0) != 0) {
    return;
  }
  constexpr size_t kBits = 8 * sizeof(Nodes::value_type);
  const auto bit = static_cast<size_t>(node);
  Nodes nodes{};
  nodes[bit / kBits] = Nodes::value_type{1} << bit % kBits;
  set_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes.data(), kMaxNodes + 1) == 0;
}

OnNode::~OnNode() {
  if (set_) syscall(SYS_set_mempolicy, policy_before_, nodes_before_.data(), kMaxNodes + 1);
}

}  // namespace hetccl
