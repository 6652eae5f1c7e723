// Chooses and orders the network interfaces of this host that hetccl may use.
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <string_view>

#include "net/name_filter.h"
#include "net/socket.h"

namespace hetccl::net {

namespace {

// Returns 0 for a network, 1 for a bridge that only this host's containers see, 2 for loopback.
int remoteness(const Interface& interface) {
  if (interface.loopback) return 2;
  return interface.name.starts_with("docker") ? 1 : 0;
}

bool family_allowed(const Config& config, int family) {
  if (config.socket_family == "inet") return family == AF_INET;
  if (config.socket_family == "inet6") return family == AF_INET6;
  return family == AF_INET || family == AF_INET6;
}

bool usable(const ifaddrs& entry, const Config& config) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0 ||
      !family_allowed(config, entry.ifa_addr->sa_family))
    return false;
  if (entry.ifa_addr->sa_family == AF_INET) return true;
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
  return !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

// Counts a netmask's bits; 0 if there is none.
int prefix_of(const ifaddrs& entry) {
  if (entry.ifa_netmask == nullptr) return 0;
  const bool v6 = entry.ifa_addr->sa_family == AF_INET6;
  const auto* bytes =
      v6 ? reinterpret_cast<const sockaddr_in6*>(entry.ifa_netmask)->sin6_addr.s6_addr
         : reinterpret_cast<const uint8_t*>(
               &reinterpret_cast<const sockaddr_in*>(entry.ifa_netmask)->sin_addr);
  return std::accumulate(bytes, bytes + (v6 ? sizeof(in6_addr) : sizeof(in_addr)), 0,
                         [](int bits, uint8_t byte) { return bits + std::popcount(byte); });
}

Interface describe(const ifaddrs& entry) {
  Interface interface;
  interface.name = entry.ifa_name;
  interface.loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  interface.prefix_bits = prefix_of(entry);
  interface.hardware = hardware_of(interface.name);
  interface.mbps = interface.hardware.mbps;
  interface.address.storage.ss_family = entry.ifa_addr->sa_family;
  std::memcpy(&interface.address.storage, entry.ifa_addr, interface.address.length());
  return interface;
}

}  // namespace

Result<std::vector<Interface>> interfaces(const Config& config) {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) return system_error("listing network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(head, &::freeifaddrs);
  const NameFilter filter(config.socket_ifname);
  HETCCL_ASSIGN(const auto rates, rates_of_cards(config.card_mbps));
  std::vector<Interface> found;
  std::string existing;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (!usable(*entry, config)) continue;
    existing += (existing.empty() ? "" : ", ") + std::string(entry->ifa_name);
    if (!filter.allows(entry->ifa_name)) continue;
    found.push_back(describe(*entry));
    if (const auto rate = rates.find(entry->ifa_name); rate != rates.end())
      found.back().mbps = rate->second;
  }
  if (found.empty())
    return error(ErrorCode::InvalidArgument,
                 "no network interface matches HETCCL_SOCKET_IFNAME=\"%s\" and "
                 "HETCCL_SOCKET_FAMILY=\"%s\"; up are: %s",
                 config.socket_ifname.c_str(), config.socket_family.c_str(),
                 existing.empty() ? "none" : existing.c_str());
  std::stable_sort(found.begin(), found.end(), [](const Interface& a, const Interface& b) {
    return remoteness(a) != remoteness(b) ? remoteness(a) < remoteness(b) : a.mbps > b.mbps;
  });
  if (!filter.selects_by_name()) {
    const int best = remoteness(found.front());
    std::erase_if(found, [best](const Interface& i) { return remoteness(i) != best; });
  }
  return found;
}

int prefix_bits_of(const SocketAddress& address) {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) return 0;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(head, &::freeifaddrs);
  const std::string wanted = address.with_port(0).text();
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != address.storage.ss_family)
      continue;
    SocketAddress one;
    one.storage.ss_family = entry->ifa_addr->sa_family;
    std::memcpy(&one.storage, entry->ifa_addr, one.length());
    if (one.text() == wanted) return prefix_of(*entry);
  }
  return 0;
}

std::vector<Interface> cards_among(const std::vector<Interface>& all, const Config& config) {
  if (NameFilter(config.socket_ifname).selects_by_name()) return all;
  std::vector<Interface> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [](const Interface& one) { return one.hardware.is_card; });
  const auto is_real = [](const Interface& one) { return one.hardware.place.known(); };
  if (std::any_of(found.begin(), found.end(), is_real)) std::erase_if(found, std::not_fn(is_real));
  // eth0 and eth0.100 are one NIC.
  std::map<std::string, std::string> first_of;
  std::erase_if(found, [&](const Interface& one) {
    return first_of.try_emplace(one.hardware.beneath, one.name).first->second != one.name;
  });
  return found.empty() ? all : found;
}

std::vector<std::string> names_of(const std::vector<Interface>& interfaces) {
  std::vector<std::string> names;
  for (const Interface& one : interfaces) {
    if (std::find(names.begin(), names.end(), one.name) == names.end()) names.push_back(one.name);
  }
  return names;
}

Result<std::map<std::string, int64_t>> rates_of_cards(const std::string& text) {
  constexpr int64_t kMaxMbps = 10'000'000;
  const auto malformed = [&] {
    return error(ErrorCode::InvalidArgument,
                 "HETCCL_CARD_MBPS=\"%s\": give interfaces with their Mbit/s, 1 to 10000000, as "
                 "eth0=25000,eth1=10000",
                 text.c_str());
  };
  std::map<std::string, int64_t> rates;
  std::string_view left = text;
  while (!left.empty()) {
    const std::string_view part = left.substr(0, left.find(','));
    left.remove_prefix(std::min(part.size() + 1, left.size()));
    const size_t equal = part.find('=');
    if (equal == part.npos || equal == 0) return malformed();
    const std::string_view number = part.substr(equal + 1);
    int64_t mbps = 0;
    const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), mbps);
    const bool whole = end == number.data() + number.size();
    if (failure != std::errc() || !whole || mbps < 1 || mbps > kMaxMbps) return malformed();
    rates[std::string(part.substr(0, equal))] = mbps;
  }
  return rates;
}

}  // namespace hetccl::net
