// TCP sockets for bootstrap and transport/tcp: addresses, listening within a port range, connecting
// with a deadline.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/fd.h"
#include "base/status.h"
#include "net/hardware.h"

namespace hetccl::net {

/// An IPv4 or IPv6 address with port. `encode` is 20 bytes: family (1 = v4, 2 = v6), 0, port (big
/// endian), 16 address bytes; link-local v6 addresses are never used.
struct SocketAddress {
  static constexpr size_t kEncodedBytes = 20;
  sockaddr_storage storage{};
  [[nodiscard]] socklen_t length() const;
  [[nodiscard]] SocketAddress with_port(uint16_t port) const;
  /// 127.0.0.0/8 or ::1: each host's own.
  [[nodiscard]] bool is_loopback() const;
  [[nodiscard]] std::string text() const;  ///< "10.0.0.1:4711" (mapped into v6 too), "[::1]:4711"
  void encode(uint8_t* out) const;
  static Result<SocketAddress> decode(const uint8_t* in);
};

/// "10.0.0.1:4711, [::1]:4711"
std::string list_of(const std::vector<SocketAddress>& addresses);
/// Whether no other host can reach any of them.
[[nodiscard]] bool are_loopback(const std::vector<SocketAddress>& addresses);

/// Who is at the other end of a connected socket: unspecified where it has gone.
SocketAddress peer_address(int fd);
/// Whether a connection's two ends are this one socket: TCP makes that of a dial to a port of this
/// host on which nobody listens, when the system chooses that very port for the dialer.
[[nodiscard]] bool is_own_peer(int fd);

/// A network interface of this host that `config` allows (HETCCL_SOCKET_IFNAME,
/// HETCCL_SOCKET_FAMILY).
struct Interface {
  std::string name;
  SocketAddress address;  ///< port 0
  int prefix_bits = 0;    ///< of the subnet that it is in
  int64_t mbps = 0;       ///< HETCCL_CARD_MBPS, else from sysfs; 0 when unknown
  bool loopback = false;
  Hardware hardware{};
};
/// Interfaces that are up, best first: as NCCL does, loopback only where there is nothing else or
/// where it is named. InvalidArgument naming HETCCL_SOCKET_IFNAME and what exists when none
/// matches.
Result<std::vector<Interface>> interfaces(const Config& config);
/// The bits of the subnet's prefix of an address of this host; 0: no interface has it.
int prefix_bits_of(const SocketAddress& address);
/// Those of them whose cards carry data, in their order: all that HETCCL_SOCKET_IFNAME names, else
/// one of each card, without bridges and tunnels, and without virtual ones beside real ones. All
/// where that leaves none.
std::vector<Interface> cards_among(const std::vector<Interface>& all, const Config& config);
/// Each once: an interface may have several addresses.
std::vector<std::string> names_of(const std::vector<Interface>& interfaces);
/// The rates of HETCCL_CARD_MBPS ("eth0=25000,eth1=10000"), by interface; InvalidArgument where it
/// is malformed.
Result<std::map<std::string, int64_t>> rates_of_cards(const std::string& text);

/// A way for a connection: to an address, perhaps from one of this host's cards.
struct Route {
  SocketAddress to;
  std::optional<SocketAddress> from;  ///< port 0
  std::string card;  ///< the interface to which the socket is bound, where this process may; or ""
  bool patient = false;                    ///< it is worth a second try of the kernel's
  [[nodiscard]] std::string text() const;  ///< "10.0.0.2:4711 from 10.0.0.1 (card eth0)"
};
std::vector<Route> routes_to(const std::vector<SocketAddress>& addresses);
/// "10.0.0.1:4711, [::1]:4711"
std::string list_of(const std::vector<Route>& routes);
/// Of this end of a connected socket, port 0, and IPv4 where it is mapped into v6.
SocketAddress own_address(int fd);

/// Listens, non-blocking, at one port of all addresses (dual stack where the host has IPv6), or of
/// those of the interfaces that HETCCL_SOCKET_IFNAME chooses.
struct Listener {
  Fd fd;  ///< polls readable when a connection waits
  uint16_t port = 0;
  std::vector<Fd> sockets{};  ///< behind `fd`, which is an epoll then; empty: `fd` is the socket
};
/// Within HETCCL_PORT_RANGE; SystemError naming the range, and how many ports a host needs, when it
/// is used up.
Result<Listener> listen(const Config& config);

/// A connection that is being made: tries routes to where somebody has said that he listens, in
/// turn. Waits for nothing. One thread at a time.
class Connecting {
 public:
  Connecting(std::vector<Route> routes, TimePoint now);
  /// A connected, non-blocking socket with TCP_NODELAY and close-on-exec; or RemoteError, which
  /// lists the routes, once all have refused for three seconds. Empty while there is neither:
  /// ask again when `fd` polls writable, and at `again`, which this only makes earlier.
  std::optional<Result<Fd>> advance(TimePoint now, TimePoint& again);
  /// -1 between two tries.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The route that is tried, or by which it has connected.
  [[nodiscard]] const Route& route() const { return routes_[index_]; }
  /// Timeout: "no connection to ADDRESSES before the deadline (last: REASON)".
  [[nodiscard]] Status too_late() const;

 private:
  // The outcome of the present try, an errno or 0; empty while it is under way.
  std::optional<int> attempt(TimePoint now, TimePoint& again);

  [[nodiscard]] Duration patience() const;

  const std::vector<Route> routes_;
  size_t index_ = 0;    // of the route that is tried
  Fd fd_;               // of a try that is under way
  TimePoint resume_{};  // no try before
  TimePoint end_{};     // of the try
  TimePoint heard_;     // when an address last did not refuse
  Duration pause_, patience_;
  int failure_;  // the last
};

/// The same, blocking until `deadline` (Timeout). `cancel` may be null; its reason is returned once
/// it is set.
Result<Fd> connect(const std::vector<SocketAddress>& addresses, TimePoint deadline,
                   const Cancel* cancel = nullptr);
/// Accepts one connection, or returns an invalid Fd when none waits.
Result<Fd> accept(const Listener& listener);

/// Exactly `bytes` bytes over a non-blocking socket, or Timeout / RemoteError (closed by the peer).
Status send_all(int fd, const void* data, size_t bytes, TimePoint deadline);
Status recv_all(int fd, void* data, size_t bytes, TimePoint deadline);

}  // namespace hetccl::net
