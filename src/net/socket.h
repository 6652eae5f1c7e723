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
  /// Returns whether it is 127.0.0.0/8 or ::1, which every host has.
  [[nodiscard]] bool is_loopback() const;
  [[nodiscard]] std::string text() const;  ///< "10.0.0.1:4711" (mapped into v6 too), "[::1]:4711"
  void encode(uint8_t* out) const;
  static Result<SocketAddress> decode(const uint8_t* in);
};

/// Returns "10.0.0.1:4711, [::1]:4711".
std::string list_of(const std::vector<SocketAddress>& addresses);
/// Returns whether no other host can reach any of them.
[[nodiscard]] bool are_loopback(const std::vector<SocketAddress>& addresses);

/// Returns the peer's address of a connected socket; unspecified if the peer has gone.
SocketAddress peer_address(int fd);
/// Returns whether a connection's two ends are one socket. TCP makes that if a process dials an
/// unused port of its own host and the system chooses this port for the dialer.
[[nodiscard]] bool is_own_peer(int fd);

/// A network interface of this host that `config` allows (HETCCL_SOCKET_IFNAME,
/// HETCCL_SOCKET_FAMILY).
struct Interface {
  std::string name;
  SocketAddress address;  ///< port 0
  int prefix_bits = 0;    ///< of its subnet
  int64_t mbps = 0;       ///< HETCCL_CARD_MBPS, else from sysfs; 0: unknown
  bool loopback = false;
  Hardware hardware{};
};
/// Returns interfaces that are up, best first. As in NCCL, includes loopback only if there is
/// nothing else or if it is named. Returns InvalidArgument naming HETCCL_SOCKET_IFNAME and the
/// interfaces if none matches.
Result<std::vector<Interface>> interfaces(const Config& config);
/// Returns the prefix bits of the subnet of an address of this host; 0: no interface has it.
int prefix_bits_of(const SocketAddress& address);
/// Returns the interfaces that carry data, in order: all that HETCCL_SOCKET_IFNAME names, else one
/// for each NIC, without bridges and tunnels, and without virtual ones if there are real ones.
/// Returns all if that leaves none.
std::vector<Interface> cards_among(const std::vector<Interface>& all, const Config& config);
/// Returns each name once: an interface may have several addresses.
std::vector<std::string> names_of(const std::vector<Interface>& interfaces);
/// Returns the rates of HETCCL_CARD_MBPS ("eth0=25000,eth1=10000") by interface, or InvalidArgument
/// if it is malformed.
Result<std::map<std::string, int64_t>> rates_of_cards(const std::string& text);

/// A route of a connection: to an address, perhaps from one of this host's NICs.
struct Route {
  SocketAddress to;
  std::optional<SocketAddress> from;  ///< port 0
  std::string card;  ///< the interface to which the socket is bound, where this process may; or ""
  bool patient = false;                    ///< worth a second try by the kernel
  [[nodiscard]] std::string text() const;  ///< "10.0.0.2:4711 from 10.0.0.1 (card eth0)"
};
std::vector<Route> routes_to(const std::vector<SocketAddress>& addresses);
/// Returns "10.0.0.1:4711, [::1]:4711".
std::string list_of(const std::vector<Route>& routes);
/// Returns this end's address of a connected socket, with port 0; IPv4 if it is mapped into v6.
SocketAddress own_address(int fd);

/// Listens, non-blocking, at one port of all addresses (dual stack if the host has IPv6), or of the
/// interfaces that HETCCL_SOCKET_IFNAME selects.
struct Listener {
  Fd fd;  ///< polls readable when a connection waits
  uint16_t port = 0;
  std::vector<Fd> sockets{};  ///< if not empty, `fd` is an epoll over these
};
/// Listens within HETCCL_PORT_RANGE. If it is used up, returns SystemError naming the range, and
/// how many ports a host needs.
Result<Listener> listen(const Config& config);

/// A connection that is being made: tries routes to a peer's listener in turn. Never blocks. One
/// thread at a time.
class Connecting {
 public:
  Connecting(std::vector<Route> routes, TimePoint now);
  /// Returns a connected, non-blocking socket with TCP_NODELAY and close-on-exec, or RemoteError
  /// listing the routes once all have refused for three seconds. Returns nothing while undecided.
  /// Then call again when `fd` polls writable, and at `again` at the latest; this call may move
  /// `again` to an earlier time.
  std::optional<Result<Fd>> advance(TimePoint now, TimePoint& again);
  /// Returns -1 between two tries.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Returns the route that is tried, or that has connected.
  [[nodiscard]] const Route& route() const { return routes_[index_]; }
  /// Returns Timeout: "no connection to ADDRESSES before the deadline (last: REASON)".
  [[nodiscard]] Status too_late() const;

 private:
  // Returns the outcome of the present try, an errno or 0; nothing while it is under way.
  std::optional<int> attempt(TimePoint now, TimePoint& again);

  [[nodiscard]] Duration patience() const;

  const std::vector<Route> routes_;
  size_t index_ = 0;    // of the route that is tried
  Fd fd_;               // of the current try
  TimePoint resume_{};  // earliest next try
  TimePoint end_{};     // of the current try
  TimePoint heard_;     // when an address last did not refuse
  Duration pause_, patience_;
  int failure_;  // the last one
};

/// Connects, blocking until `deadline` (Timeout). `cancel` may be null; once set, its reason is
/// returned.
Result<Fd> connect(const std::vector<SocketAddress>& addresses, TimePoint deadline,
                   const Cancel* cancel = nullptr);
/// Accepts one connection, or returns an invalid Fd if none waits.
Result<Fd> accept(const Listener& listener);

/// Transfer exactly `bytes` bytes over a non-blocking socket, or return Timeout or RemoteError
/// (closed by the peer).
Status send_all(int fd, const void* data, size_t bytes, TimePoint deadline);
Status recv_all(int fd, void* data, size_t bytes, TimePoint deadline);

}  // namespace hetccl::net
