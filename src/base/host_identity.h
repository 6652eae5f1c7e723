// Identifies the host on which this process runs.
#pragma once

#include <string>

namespace hetccl {

/// Returns an identity that is equal for processes that may share memory: the boot, the network and
/// process namespaces, and the user.
std::string host_identity();
/// Returns an identity that is equal for processes that share loopback addresses: the boot and the
/// network namespace. Empty if the system does not tell.
std::string network_identity();
/// Returns the host's name, for people; "unknown" if it has none.
std::string host_name();

}  // namespace hetccl
