#include "net/resolve.h"

#include <netdb.h>

#include <charconv>
#include <cstring>
#include <memory>

namespace hetccl::net {
namespace {

std::optional<uint16_t> to_port(std::string_view text) {
  uint16_t port = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool whole = failed == std::errc() && end == text.data() + text.size() && port != 0;
  return whole ? std::optional(port) : std::nullopt;
}

}  // namespace

Result<std::vector<SocketAddress>> resolve(const std::string& place) {
  const size_t colon = place.rfind(':');
  std::string host = place.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  const auto port = to_port(colon == std::string::npos ? "" : place.substr(colon + 1));
  if (host.empty() || host.size() > NI_MAXHOST || !port) {
    return error(ErrorCode::InvalidArgument, "\"%.80s\" is no host:port, as 10.0.0.1:4711",
                 place.c_str());
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = AF_UNSPEC;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failed != 0) {
    return error(ErrorCode::InvalidArgument, "the host of \"%.80s\" is not known: %s",
                 place.c_str(), ::gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    addresses.push_back(address.with_port(*port));
  }
  if (!addresses.empty()) return addresses;
  return error(ErrorCode::InvalidArgument, "\"%.80s\" has no address", place.c_str());
}

}  // namespace hetccl::net
