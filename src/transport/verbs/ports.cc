// Finds the ports of this host, and chooses the GID of each.
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "net/name_filter.h"
#include "net/socket.h"
#include "transport/verbs/device.h"

namespace hetccl::transport::verbs {
namespace {

// Ranks GIDs. Sites route RoCE v2 over IPv4, then over IPv6; version 1 stays within its Ethernet. A
// GID without an address is useless, and every interface has a link-local GID, even if nobody
// reaches it.
constexpr int kLinkLocal = 1;
int rank_of(const abi::GidEntry& entry, uint8_t link) {
  if (std::all_of(entry.gid.raw + 8, entry.gid.raw + 16, [](uint8_t one) { return one == 0; }))
    return 0;
  if (link == abi::kLinkInfiniBand) return entry.index == 0 ? 2 : 1;
  const bool second = entry.type == abi::kGidRoceV2;
  if (is_link_local(entry.gid)) return kLinkLocal;
  if (is_ipv4(entry.gid)) return second ? 5 : 3;
  return second ? 4 : 2;
}

// Names the reason why a GID of that rank is chosen.
const char* reason_of(int rank, uint8_t link) {
  if (link == abi::kLinkInfiniBand) return rank == 2 ? "the port's own" : "the first of an address";
  switch (rank) {
    case 5:
      return "the first of v2 and IPv4";
    case 4:
      return "the first of v2, none has IPv4";
    case 3:
      return "the first of IPv4, none is of v2";
    default:
      return "none is of v2 or IPv4";
  }
}

uint8_t prefix_bits_of(const abi::Gid& gid) {
  net::SocketAddress address;
  if (is_ipv4(gid)) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, gid.raw + 12, sizeof v4.sin_addr);
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    std::memcpy(&v6.sin6_addr, gid.raw, sizeof v6.sin6_addr);
  }
  return static_cast<uint8_t>(net::prefix_bits_of(address));
}

// Converts InfiniBand's codes of width and speed, which Ethernet ports use, too. 0: unknown.
uint32_t mbps_of(const abi::PortAttr& attr) {
  const auto lanes = [&]() -> uint32_t {
    switch (attr.active_width) {
      case 1:
        return 1;
      case 2:
        return 4;
      case 4:
        return 8;
      case 8:
        return 12;
      case 16:
        return 2;
      default:
        return 0;
    }
  };
  switch (attr.active_speed) {
    case 1:
      return 2500 * lanes();
    case 2:
      return 5000 * lanes();
    case 4:
    case 8:
      return 10'000 * lanes();
    case 16:
      return 14'000 * lanes();
    case 32:
      return 25'000 * lanes();
    case 64:
      return 50'000 * lanes();
    case 128:
      return 100'000 * lanes();
    default:
      return 0;
  }
}

std::string text_of(const abi::Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  if (is_ipv4(gid))
    ::inet_ntop(AF_INET, gid.raw + 12, text, sizeof text);
  else
    ::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

Status choose_gid(const Api& api, const Config& config, const abi::PortAttr& attr, Port& port) {
  std::optional<abi::GidEntry> best;
  int best_rank = 0;
  const bool may_be_local = config.rdma_gid_index >= 0 || port.link == abi::kLinkInfiniBand;
  for (int i = 0; i < attr.gid_table_length && i < 256; ++i) {
    if (config.rdma_gid_index >= 0 && config.rdma_gid_index != i) continue;
    abi::GidEntry entry{};
    if (api.query_gid(port.device->context(), port.number, static_cast<uint32_t>(i), &entry, 0,
                      sizeof entry) != 0)
      continue;
    const int rank = rank_of(entry, port.link);
    if (rank <= best_rank || (rank == kLinkLocal && !may_be_local)) continue;
    best = entry;
    best_rank = rank;
  }
  if (!best && config.rdma_gid_index >= 0)
    return error(ErrorCode::InvalidArgument, "it has no GID %lld (HETCCL_RDMA_GID_INDEX)",
                 static_cast<long long>(config.rdma_gid_index));
  if (!best)
    return error(ErrorCode::Unsupported,
                 "it has no GID of an address: give its network interface one, or name a "
                 "link-local GID with HETCCL_RDMA_GID_INDEX");
  port.gid = *best;
  port.gid_index = static_cast<uint8_t>(best->index);
  port.gid_reason =
      config.rdma_gid_index >= 0 ? "HETCCL_RDMA_GID_INDEX" : reason_of(best_rank, port.link);
  if (port.link == abi::kLinkEthernet) port.prefix_bits = prefix_bits_of(port.gid.gid);
  return {};
}

Status choose_pkey(const Api& api, const Config& config, const abi::PortAttr& attr, Port& port) {
  constexpr int kMembership = 0x7fff;  // without the upper bit, which tells full membership
  if (config.rdma_pkey == 0) return {};
  for (uint16_t i = 0; i < attr.pkey_table_length; ++i) {
    uint16_t key = 0;
    if (api.query_pkey(port.device->context(), port.number, i, &key) != 0) continue;
    if ((ntohs(key) & kMembership) != (config.rdma_pkey & kMembership)) continue;
    port.pkey_index = i;
    return {};
  }
  return error(ErrorCode::InvalidArgument, "it is not in partition 0x%llx (HETCCL_RDMA_PKEY)",
               static_cast<unsigned long long>(config.rdma_pkey));
}

Status examine(const Api& api, const Config& config, const abi::PortAttr& attr, Port& port) {
  if (attr.state != abi::kPortActive)
    return error(ErrorCode::Unsupported, "it is not active (%s)",
                 attr.state == abi::kPortDown ? "down, or no cable" : "no subnet manager yet");
  if (attr.link_layer != abi::kLinkEthernet && attr.link_layer != abi::kLinkInfiniBand)
    return error(ErrorCode::Unsupported, "it is neither Ethernet nor InfiniBand");
  port.link = attr.link_layer;
  port.lid = attr.lid;
  port.mtu = attr.active_mtu;
  port.mbps = mbps_of(attr);
  HETCCL_TRY(choose_gid(api, config, attr, port));
  return choose_pkey(api, config, attr, port);
}

void add_ports(const std::shared_ptr<const Api>& api, const Config& config, abi::Device* device,
               std::vector<Port>& ports) {
  constexpr uint8_t kMostPorts = 4;
  auto opened = Device::open(api, device);
  if (!opened.ok()) {
    Port port;
    port.name = device->name;
    port.unusable = opened.status().message();
    ports.push_back(std::move(port));
    return;
  }
  const net::BusLocation place = net::locate_folder(device->ibdev_path + std::string("/device"));
  for (uint8_t number = 1; number <= kMostPorts; ++number) {
    abi::PortAttr attr{};
    if (api->query_port(opened.value()->context(), number, &attr) != 0) break;
    Port port;
    port.name = format("%s:%d", device->name, number);
    port.device = opened.value();
    port.number = number;
    port.place = place;
    const Status examined = examine(*api, config, attr, port);
    port.unusable = examined.message();
    port.excluded = examined.code() == ErrorCode::InvalidArgument;
    ports.push_back(std::move(port));
  }
}

}  // namespace

std::string Port::describe() const {
  if (!unusable.empty()) return format("%s is not used: %s", name.c_str(), unusable.c_str());
  const bool infiniband = link == abi::kLinkInfiniBand;
  const char* kind = infiniband                    ? "InfiniBand"
                     : gid.type == abi::kGidRoceV2 ? "RoCE v2"
                                                   : "RoCE v1";
  std::string where = infiniband ? format("LID %d", lid) : text_of(gid.gid);
  if (prefix_bits > 0) where += format("/%d", prefix_bits);
  const std::string rate = mbps > 0 ? format(", %g Gbit/s", mbps / 1000.0) : "";
  return format("%s: %s, GID %d (%s, %s), MTU %d%s", name.c_str(), kind, gid_index, where.c_str(),
                gid_reason, 128 << mtu, rate.c_str());
}

Result<std::vector<Port>> find_ports(const std::shared_ptr<const Api>& api, const Config& config) {
  int n = 0;
  abi::Device** devices = api->list_devices(&n);
  const net::NameFilter filter(config.rdma_devices);
  std::vector<Port> ports;
  std::string names;
  for (int i = 0; devices != nullptr && i < n; ++i) {
    names += (i > 0 ? ", " : "") + std::string(devices[i]->name);
    if (filter.allows(devices[i]->name)) add_ports(api, config, devices[i], ports);
  }
  if (devices != nullptr) api->free_devices(devices);
  if (n == 0) return error(ErrorCode::Unsupported, "this host has no RDMA device");
  if (ports.empty())
    return error(ErrorCode::InvalidArgument,
                 "HETCCL_RDMA_DEVICES=%s admits none of this host's RDMA devices (%s)",
                 config.rdma_devices.c_str(), names.c_str());
  std::stable_sort(ports.begin(), ports.end(), [](const Port& a, const Port& b) {
    return ::strverscmp(a.name.c_str(), b.name.c_str()) < 0;
  });
  return ports;
}

}  // namespace hetccl::transport::verbs
