// Which network interfaces of this host hetccl may use, in which order.
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>

#include "net/socket.h"

namespace hetccl::net {

namespace {

// HETCCL_SOCKET_IFNAME in NCCL's syntax: a list of prefixes; "=" makes them exact names, "^"
// excludes them ("^=" both).
class NameFilter {
 public:
  explicit NameFilter(std::string_view text) {
    excludes_ = text.starts_with('^');
    text.remove_prefix(excludes_ ? 1 : 0);
    exact_ = text.starts_with('=');
    text.remove_prefix(exact_ ? 1 : 0);
    while (!text.empty()) {
      const size_t end = std::min(text.find(','), text.size());
      if (end > 0) names_.emplace_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  // An interface that the user named is wanted whatever its kind.
  [[nodiscard]] bool names_what_it_wants() const { return !excludes_ && !names_.empty(); }
  [[nodiscard]] bool allows(std::string_view name) const {
    if (names_.empty()) return true;
    const bool listed = std::any_of(names_.begin(), names_.end(), [&](const std::string& entry) {
      return exact_ ? name == entry : name.starts_with(entry);
    });
    return listed != excludes_;
  }

 private:
  bool excludes_ = false;
  bool exact_ = false;
  std::vector<std::string> names_;
};

// 0: a network; 1: a bridge that only this host's containers see; 2: loopback.
int remoteness(const Interface& interface) {
  if (interface.loopback) return 2;
  return interface.name.starts_with("docker") ? 1 : 0;
}

int64_t speed_mbps(const std::string& name) {
  std::ifstream file("/sys/class/net/" + name + "/speed");
  int64_t speed = 0;
  return file >> speed && speed > 0 ? speed : 0;
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

Interface describe(const ifaddrs& entry) {
  Interface interface;
  interface.name = entry.ifa_name;
  interface.loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  interface.mbps = speed_mbps(interface.name);
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
  std::vector<Interface> found;
  std::string existing;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (!usable(*entry, config)) continue;
    existing += (existing.empty() ? "" : ", ") + std::string(entry->ifa_name);
    if (filter.allows(entry->ifa_name)) found.push_back(describe(*entry));
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
  if (!filter.names_what_it_wants()) {
    const int best = remoteness(found.front());
    std::erase_if(found, [best](const Interface& i) { return remoteness(i) != best; });
  }
  return found;
}

}  // namespace hetccl::net
