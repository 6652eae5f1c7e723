// Which host this process runs on.
#pragma once

#include <string>

namespace hetccl {

/// Equal on processes that may share memory: the boot, the namespaces of network and processes, and
/// the user.
std::string host_identity();
/// Equal on processes that share loopback addresses: the boot, and the namespace of the network.
/// Empty where the system does not tell.
std::string network_identity();
/// The host's name, for people; "unknown" where it has none.
std::string host_name();

}  // namespace hetccl
