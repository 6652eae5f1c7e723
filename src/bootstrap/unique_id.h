// What the 128 bytes of a unique id hold: where the coordinator listens, which communicator is
// meant, and the secret that proves membership.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "net/auth.h"
#include "net/socket.h"

namespace hetccl::bootstrap {

/// An id holds at most this many of the coordinator's addresses.
inline constexpr size_t kMaxAddresses = 4;
/// Tells the hosts that share no loopback address apart, without saying which they are.
using HostMark = std::array<uint8_t, 16>;

struct Invitation {
  uint64_t communicator = 0;
  net::Secret secret;                         ///< as it travels; the key is net::job_key of it
  std::vector<net::SocketAddress> addresses;  ///< 1 to kMaxAddresses, best first
  HostMark host{};  ///< of the host that made it, where it has loopback addresses only; or zeros
};

/// Layout: magic and version (8 bytes), communicator (8, little endian), secret (32), four encoded
/// addresses (20 each, family 0 where there is none). A host's mark stands where the fourth would.
UniqueId encode(const Invitation& invitation);
/// InvalidArgument when the bytes are not an id of this version, or name no address.
Result<Invitation> decode(const UniqueId& id);

/// Keeps at most three addresses and marks the host, where all addresses are loopback.
void mark_host(Invitation& invitation);
/// InvalidArgument where no address of the id leads to the process that made it: all are loopback,
/// and another host's.
Status check_host(const Invitation& invitation);

/// The secret of a communicator whose ranks all know `parent`'s.
net::Secret child_secret(const net::Secret& parent, uint64_t communicator);

/// The addresses to put into an id: those of `interfaces` with `port`, at most kMaxAddresses, one
/// of each interface before a second of any.
std::vector<net::SocketAddress> choose_addresses(const std::vector<net::Interface>& interfaces,
                                                 uint16_t port);

}  // namespace hetccl::bootstrap
