// The contents of a 128-byte unique id: where the coordinator listens, which communicator is meant,
// and the secret that proves membership.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "net/auth.h"
#include "net/socket.h"

namespace hetccl::bootstrap {

/// The most addresses of a coordinator in an id.
inline constexpr size_t kMaxAddresses = 4;
/// Distinguishes hosts whose loopback addresses are equal, without naming them.
using HostMark = std::array<uint8_t, 16>;

struct Invitation {
  uint64_t communicator = 0;
  net::Secret secret;                         ///< as sent; the key is net::job_key of it
  std::vector<net::SocketAddress> addresses;  ///< 1 to kMaxAddresses, best first
  HostMark host{};  ///< of the host that made it, if it only has loopback addresses; else zeros
};

/// Layout: magic and version (8 bytes), communicator (8, little endian), secret (32), four encoded
/// addresses (20 each; family 0: none). A host's mark replaces the fourth.
UniqueId encode(const Invitation& invitation);
/// Returns InvalidArgument if the bytes are no id of this version, or name no address.
Result<Invitation> decode(const UniqueId& id);

/// If all addresses are loopback, keeps at most three and marks the host.
void mark_host(Invitation& invitation);
/// Returns InvalidArgument if no address of the id leads to the process that made it: all are
/// loopback, and of another host.
Status check_host(const Invitation& invitation);

/// Returns the secret of a communicator whose ranks all know `parent`'s.
net::Secret child_secret(const net::Secret& parent, uint64_t communicator);

/// Chooses the addresses for an id: those of `interfaces` with `port`, at most kMaxAddresses, one
/// of each interface before a second of any.
std::vector<net::SocketAddress> choose_addresses(const std::vector<net::Interface>& interfaces,
                                                 uint16_t port);

}  // namespace hetccl::bootstrap
