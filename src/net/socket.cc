#include "net/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

namespace hetccl::net {

namespace {

constexpr uint8_t kFamilyV4 = 1;
constexpr uint8_t kFamilyV6 = 2;
constexpr size_t kAddressOffset = 4;
// A firewall or a container's network may refuse for a moment; after this, nobody listens any more.
constexpr std::chrono::seconds kNobodyListens(3);
// The kernel repeats a lost connection request after 1, 3, 7, ... seconds, so a new attempt is
// answered sooner.
constexpr std::chrono::seconds kLongestAttempt(2);
constexpr int kPortTries = 32;

const sockaddr* generic(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr*>(&storage);
}

uint16_t port_of(const sockaddr_storage& storage) {
  return ntohs(storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

// Returns the milliseconds until `deadline` for poll(2), at least 0, rounded up so that a wait
// never ends early.
int poll_timeout(TimePoint deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock().now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

// Waits for `events`. Returns false once the deadline has passed.
bool wait_for(int fd, short events, TimePoint deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    if (::poll(&entry, 1, poll_timeout(deadline)) > 0) return true;
    if (steady_clock().now() >= deadline) return false;
  }
}

bool is_closed_by_peer(int errno_value) {
  return errno_value == EPIPE || errno_value == ECONNRESET || errno_value == ENOTCONN;
}

Status timeout(const char* what, size_t done, size_t bytes) {
  return error(ErrorCode::Timeout, "%s: %zu of %zu bytes when the deadline passed", what, done,
               bytes);
}

void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Binds to the NIC's device, so that packets leave by it whatever the routing table says. Without
// that right (before Linux 5.7 only root has it), the source address and the table decide. Returns
// an errno or 0.
int bind_to_card(int fd, const Route& route) {
  if (!route.from) return 0;
  if (!route.card.empty()) {
    const auto length = static_cast<socklen_t>(route.card.size() + 1);
    ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, route.card.c_str(), length);
  }
  const int on = 1;  // the port is chosen with the peer's address, so there are enough
  ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  return ::bind(fd, generic(route.from->storage), route.from->length()) == 0 ? 0 : errno;
}

bool are_loopback(const std::vector<Route>& routes) {
  return std::all_of(routes.begin(), routes.end(),
                     [](const Route& route) { return route.to.is_loopback(); });
}

struct PortRange {
  uint16_t first = 0, last = 0;
};

Result<PortRange> parse_port_range(const std::string& text) {
  PortRange range;
  if (text.empty()) return range;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.first);
  const bool dash = first.ec == std::errc() && first.ptr != end && *first.ptr == '-';
  const auto last = dash ? std::from_chars(first.ptr + 1, end, range.last) : first;
  if (!dash || last.ec != std::errc() || last.ptr != end || range.first == 0 ||
      range.first > range.last)
    return error(ErrorCode::InvalidArgument,
                 "HETCCL_PORT_RANGE=\"%s\": give it as first-last, e.g. 20000-20100", text.c_str());
  return range;
}

// Binds to `address` and listens. Returns 0 or the errno.
int try_listen(SocketAddress address, bool only_v6, Listener* out) {
  const int family = address.storage.ss_family;
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  const int on = 1;
  const int v6_only = only_v6 ? 1 : 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6 &&
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only) != 0)
    return errno;
  if (::bind(fd.get(), generic(address.storage), address.length()) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0)
    return errno;
  socklen_t length = sizeof address.storage;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address.storage), &length) != 0)
    return errno;
  *out = {std::move(fd), port_of(address.storage)};
  return 0;
}

// Listens at every address of `family`.
int try_listen(int family, bool only_v6, uint16_t port, Listener* out) {
  SocketAddress any;
  any.storage.ss_family = static_cast<sa_family_t>(family);
  return try_listen(any.with_port(port), only_v6, out);
}

// Listens at one port of `addresses`; 0: the system chooses it.
int try_listen(const std::vector<SocketAddress>& addresses, uint16_t port, Listener* out) {
  Listener all{Fd(::epoll_create1(EPOLL_CLOEXEC)), port};
  if (!all.fd.valid()) return errno;
  int failure = 0;
  for (const SocketAddress& address : addresses) {
    Listener one;
    failure = try_listen(address.with_port(all.port), true, &one);
    if (failure == EADDRNOTAVAIL) continue;  // an IPv6 address that is not in use yet, or no longer
    if (failure != 0) return failure;
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(all.fd.get(), EPOLL_CTL_ADD, one.fd.get(), &event) != 0) return errno;
    all.port = one.port;
    all.sockets.push_back(std::move(one.fd));
  }
  if (all.sockets.empty()) return failure;
  if (all.sockets.size() == 1) all = {std::move(all.sockets.front()), all.port};
  *out = std::move(all);
  return 0;
}

int try_listen(const Config& config, const std::vector<SocketAddress>& chosen, uint16_t port,
               Listener* out) {
  if (!chosen.empty()) {
    int failure = try_listen(chosen, port, out);
    // A port that is free at one address may be taken at the next.
    for (int i = 0; port == 0 && failure == EADDRINUSE && i < kPortTries; ++i)
      failure = try_listen(chosen, port, out);
    return failure;
  }
  const bool only_v6 = config.socket_family == "inet6";
  int failure =
      config.socket_family == "inet" ? EAFNOSUPPORT : try_listen(AF_INET6, only_v6, port, out);
  // A host without IPv6, or whose kernel refuses dual stack, still has IPv4.
  if (failure != 0 && failure != EADDRINUSE && failure != EACCES && !only_v6)
    failure = try_listen(AF_INET, false, port, out);
  return failure;
}

}  // namespace

socklen_t SocketAddress::length() const {
  return storage.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

SocketAddress SocketAddress::with_port(uint16_t port) const {
  SocketAddress other = *this;
  if (storage.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(other.storage).sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in&>(other.storage).sin_port = htons(port);
  return other;
}

bool SocketAddress::is_loopback() const {
  if (storage.ss_family != AF_INET6) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage).sin_addr;
    return ntohl(v4.s_addr) >> 24U == IN_LOOPBACKNET;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

std::string SocketAddress::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  const auto& of_v6 = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  const bool mapped = storage.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&of_v6);
  const bool v6 = storage.ss_family == AF_INET6 && !mapped;
  const void* raw =
      v6       ? static_cast<const void*>(&of_v6)
      : mapped ? &of_v6.s6_addr[12]
               : static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(storage).sin_addr);
  ::inet_ntop(v6 ? AF_INET6 : AF_INET, raw, host, sizeof host);
  return format(v6 ? "[%s]:%u" : "%s:%u", host, static_cast<unsigned>(port_of(storage)));
}

void SocketAddress::encode(uint8_t* out) const {
  std::memset(out, 0, kEncodedBytes);
  const bool v6 = storage.ss_family == AF_INET6;
  out[0] = v6 ? kFamilyV6 : kFamilyV4;
  const uint16_t port = port_of(storage);
  out[2] = static_cast<uint8_t>(port >> 8);
  out[3] = static_cast<uint8_t>(port & 0xff);
  if (v6)
    std::memcpy(out + kAddressOffset, &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr,
                sizeof(in6_addr));
  else
    std::memcpy(out + kAddressOffset, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr,
                sizeof(in_addr));
}

Result<SocketAddress> SocketAddress::decode(const uint8_t* in) {
  if ((in[0] != kFamilyV4 && in[0] != kFamilyV6) || in[1] != 0)
    return error(ErrorCode::InvalidArgument, "not a socket address (family %u)",
                 static_cast<unsigned>(in[0]));
  SocketAddress address;
  const auto port = htons(static_cast<uint16_t>(in[2] << 8 | in[3]));
  if (in[0] == kFamilyV6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = port;
    std::memcpy(&v6.sin6_addr, in + kAddressOffset, sizeof v6.sin6_addr);
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    v4.sin_port = port;
    std::memcpy(&v4.sin_addr, in + kAddressOffset, sizeof v4.sin_addr);
  }
  return address;
}

std::string list_of(const std::vector<SocketAddress>& addresses) {
  std::string list;
  for (const SocketAddress& address : addresses)
    list += (list.empty() ? "" : ", ") + address.text();
  return list;
}

bool are_loopback(const std::vector<SocketAddress>& addresses) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const SocketAddress& address) { return address.is_loopback(); });
}

std::string Route::text() const {
  std::string text = to.text();
  if (from) {
    std::string own = from->text();
    text += " from " + own.substr(0, own.rfind(':'));  // port 0
  }
  return card.empty() ? text : text + " (card " + card + ")";
}

std::vector<Route> routes_to(const std::vector<SocketAddress>& addresses) {
  std::vector<Route> routes;
  for (const SocketAddress& address : addresses) routes.push_back({address, {}, {}});
  return routes;
}

std::string list_of(const std::vector<Route>& routes) {
  std::string list;
  for (const Route& route : routes) list += (list.empty() ? "" : ", ") + route.text();
  return list;
}

SocketAddress own_address(int fd) {
  SocketAddress own;
  socklen_t length = sizeof own.storage;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&own.storage), &length);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(own.storage).sin6_addr;
  if (own.storage.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6)) {
    SocketAddress mapped;
    auto& v4 = reinterpret_cast<sockaddr_in&>(mapped.storage);
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, &v6.s6_addr[12], sizeof v4.sin_addr);
    return mapped;
  }
  return own.with_port(0);
}

SocketAddress peer_address(int fd) {
  SocketAddress peer;
  socklen_t length = sizeof peer.storage;
  ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &length);
  return peer;
}

bool is_own_peer(int fd) {
  SocketAddress self;
  socklen_t length = sizeof self.storage;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&self.storage), &length);
  return self.text() == peer_address(fd).text();
}

Result<Listener> listen(const Config& config) {
  HETCCL_ASSIGN(const PortRange range, parse_port_range(config.port_range));
  std::vector<SocketAddress> chosen;
  if (!config.socket_ifname.empty()) {
    HETCCL_ASSIGN(const auto all, interfaces(config));
    for (const Interface& one : all) chosen.push_back(one.address);
  }
  Listener listener;
  int failure = 0;
  for (uint32_t port = range.first; port <= range.last; ++port) {
    failure = try_listen(config, chosen, static_cast<uint16_t>(port), &listener);
    if (failure == 0) return listener;
  }
  if (range.first == 0) return system_error("listening on a port chosen by the system", failure);
  return system_error(format("no port of HETCCL_PORT_RANGE=%s is free; widen it to two ports for "
                             "each rank on this host, those of other jobs included",
                             config.port_range.c_str()),
                      failure);
}

// An address that swallows packets must not use up the deadline while others would answer.
Connecting::Connecting(std::vector<Route> routes, TimePoint now)
    : routes_(std::move(routes)),
      heard_(now),
      pause_(std::chrono::milliseconds(1)),
      patience_(routes_.size() == 1 ? Duration(kLongestAttempt) : std::chrono::milliseconds(250)),
      failure_(ETIMEDOUT) {}

Duration Connecting::patience() const {
  return routes_[index_].patient ? Duration(kLongestAttempt) : patience_;
}

std::optional<int> Connecting::attempt(TimePoint now, TimePoint& again) {
  if (!fd_.valid()) {
    const SocketAddress& address = routes_[index_].to;
    fd_ = Fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd_.valid()) return errno;
    set_no_delay(fd_.get());
    if (const int failure = bind_to_card(fd_.get(), routes_[index_]); failure != 0) return failure;
    end_ = now + patience();
    const int result = ::connect(fd_.get(), generic(address.storage), address.length());
    if (result != 0 && errno != EINPROGRESS && errno != EINTR) return errno;
  }
  pollfd entry{fd_.get(), POLLOUT, 0};
  if (::poll(&entry, 1, 0) <= 0) {
    if (now >= end_) return ETIMEDOUT;
    again = std::min(again, end_);
    return std::nullopt;
  }
  int failure = 0;
  socklen_t length = sizeof failure;
  ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &failure, &length);
  return failure == 0 && is_own_peer(fd_.get()) ? ECONNREFUSED : failure;
}

std::optional<Result<Fd>> Connecting::advance(TimePoint now, TimePoint& again) {
  if (routes_.empty()) return error(ErrorCode::InvalidArgument, "no address to connect to");
  while (now >= resume_) {
    const auto result = attempt(now, again);
    if (!result) return std::nullopt;
    if (*result == 0) return std::move(fd_);
    fd_.reset();
    if (*result != ETIMEDOUT) failure_ = *result;
    if (*result != ECONNREFUSED) heard_ = now;
    if (++index_ < routes_.size()) continue;
    index_ = 0;
    if (now - heard_ > kNobodyListens) {
      return error(
          ErrorCode::RemoteError,
          "nobody listens at %s (%s): the process that did has ended, or a firewall refuses%s",
          list_of(routes_).c_str(), std::strerror(failure_),
          are_loopback(routes_) ? "; loopback is this host: a process on another one must "
                                  "listen elsewhere (HETCCL_SOCKET_IFNAME)"
                                : "");
    }
    resume_ = now + pause_;
    pause_ = std::min<Duration>(pause_ * 2, std::chrono::milliseconds(50));
    patience_ = std::min<Duration>(patience_ * 2, kLongestAttempt);
  }
  again = std::min(again, resume_);
  return std::nullopt;
}

Status Connecting::too_late() const {
  return error(ErrorCode::Timeout, "no connection to %s before the deadline (last: %s)",
               list_of(routes_).c_str(), std::strerror(failure_));
}

Result<Fd> connect(const std::vector<SocketAddress>& addresses, TimePoint deadline,
                   const Cancel* cancel) {
  Connecting connecting(routes_to(addresses), steady_clock().now());
  for (;;) {
    const TimePoint now = steady_clock().now();
    TimePoint again = deadline;
    if (auto connected = connecting.advance(now, again)) return std::move(*connected);
    if (cancel != nullptr && cancel->is_set()) return cancel->reason();
    if (now >= deadline) return connecting.too_late();
    pollfd entries[] = {{connecting.fd(), POLLOUT, 0},
                        {cancel != nullptr ? cancel->fd() : -1, POLLIN, 0}};
    ::poll(entries, 2, poll_timeout(again));
  }
}

Result<Fd> accept(const Listener& listener) {
  constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;
  int fd = -1;
  if (listener.sockets.empty()) fd = ::accept4(listener.fd.get(), nullptr, nullptr, kFlags);
  for (const Fd& socket : listener.sockets) {
    fd = ::accept4(socket.get(), nullptr, nullptr, kFlags);
    if (fd >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) break;
  }
  if (fd >= 0) {
    set_no_delay(fd);
    return Fd(fd);
  }
  // Only these errors concern this host; all others concern one peer's connection.
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
    return system_error("accepting a connection", errno);
  return Fd();
}

Status send_all(int fd, const void* data, size_t bytes, TimePoint deadline) {
  const auto* from = static_cast<const uint8_t*>(data);
  for (size_t done = 0; done < bytes;) {
    const ssize_t sent = ::send(fd, from + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      done += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, deadline)) return timeout("sending", done, bytes);
    } else if (is_closed_by_peer(errno)) {
      return error(ErrorCode::RemoteError, "connection closed by the peer");
    } else if (errno != EINTR) {
      return system_error("sending", errno);
    }
  }
  return {};
}

Status recv_all(int fd, void* data, size_t bytes, TimePoint deadline) {
  auto* to = static_cast<uint8_t*>(data);
  for (size_t done = 0; done < bytes;) {
    const ssize_t received = ::recv(fd, to + done, bytes - done, MSG_DONTWAIT);
    if (received > 0) {
      done += static_cast<size_t>(received);
    } else if (received == 0 || is_closed_by_peer(errno)) {
      return error(ErrorCode::RemoteError, "connection closed by the peer");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLIN, deadline)) return timeout("receiving", done, bytes);
    } else if (errno != EINTR) {
      return system_error("receiving", errno);
    }
  }
  return {};
}

}  // namespace hetccl::net
