// Finds the ports of this host, and chooses the GID of each.
#include <arpa/inet.h>

#include <algorithm>
#include <optional>

#include "net/name_filter.h"
#include "transport/verbs/device.h"

namespace hetccl::transport::verbs {
namespace {

// RoCE v2 over IPv4, then over IPv6, is routed as the sites route their packets; version 1 stays
// within an Ethernet. A GID of no address is no use.
int rank_of(const abi::GidEntry& entry, uint8_t link) {
  if (std::all_of(entry.gid.raw + 8, entry.gid.raw + 16, [](uint8_t one) { return one == 0; }))
    return 0;
  if (link == abi::kLinkInfiniBand) return entry.index == 0 ? 2 : 1;
  const bool second = entry.type == abi::kGidRoceV2;
  const bool link_local = entry.gid.raw[0] == 0xfe && entry.gid.raw[1] == 0x80;
  if (is_ipv4(entry.gid)) return second ? 6 : 3;
  if (link_local) return second ? 4 : 1;
  return second ? 5 : 2;
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
  for (int i = 0; i < attr.gid_table_length && i < 256; ++i) {
    if (config.rdma_gid_index >= 0 && config.rdma_gid_index != i) continue;
    abi::GidEntry entry{};
    if (api.query_gid(port.device->context(), port.number, static_cast<uint32_t>(i), &entry, 0,
                      sizeof entry) != 0)
      continue;
    const int rank = rank_of(entry, port.link);
    if (rank <= best_rank) continue;
    best = entry;
    best_rank = rank;
  }
  if (!best && config.rdma_gid_index >= 0)
    return error(ErrorCode::Unsupported, "it has no GID %lld (HETCCL_RDMA_GID_INDEX)",
                 static_cast<long long>(config.rdma_gid_index));
  if (!best)
    return error(ErrorCode::Unsupported, "it has no GID: its network interface needs an address");
  port.gid = *best;
  port.gid_index = static_cast<uint8_t>(best->index);
  return {};
}

Status choose_pkey(const Api& api, const Config& config, const abi::PortAttr& attr, Port& port) {
  constexpr int kMembership = 0x7fff;  // the upper bit is whether it is a full one
  if (config.rdma_pkey == 0) return {};
  for (uint16_t i = 0; i < attr.pkey_table_length; ++i) {
    uint16_t key = 0;
    if (api.query_pkey(port.device->context(), port.number, i, &key) != 0) continue;
    if ((ntohs(key) & kMembership) != (config.rdma_pkey & kMembership)) continue;
    port.pkey_index = i;
    return {};
  }
  return error(ErrorCode::Unsupported, "it is not in partition 0x%llx (HETCCL_RDMA_PKEY)",
               static_cast<unsigned long long>(config.rdma_pkey));
}

Status examine(const Api& api, const Config& config, const abi::PortAttr& attr, Port& port) {
  if (attr.state != abi::kPortActive)
    return error(ErrorCode::Unsupported, "it is not active (%s)",
                 attr.state == abi::kPortDown ? "down" : "no cable, or no subnet manager");
  if (attr.link_layer != abi::kLinkEthernet && attr.link_layer != abi::kLinkInfiniBand)
    return error(ErrorCode::Unsupported, "it is neither Ethernet nor InfiniBand");
  port.link = attr.link_layer;
  port.lid = attr.lid;
  port.mtu = attr.active_mtu;
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
  for (uint8_t number = 1; number <= kMostPorts; ++number) {
    abi::PortAttr attr{};
    if (api->query_port(opened.value()->context(), number, &attr) != 0) break;
    Port port;
    port.name = format("%s:%d", device->name, number);
    port.device = opened.value();
    port.number = number;
    port.unusable = examine(*api, config, attr, port).message();
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
  const std::string where = infiniband ? format("LID %d", lid) : text_of(gid.gid);
  return format("%s: %s, GID %d (%s), MTU %d", name.c_str(), kind, gid_index, where.c_str(),
                128 << mtu);
}

Result<std::vector<Port>> find_ports(const std::shared_ptr<const Api>& api, const Config& config) {
  int n = 0;
  abi::Device** devices = api->list_devices(&n);
  const net::NameFilter filter(config.rdma_devices);
  std::vector<Port> ports;
  for (int i = 0; devices != nullptr && i < n; ++i) {
    if (filter.allows(devices[i]->name)) add_ports(api, config, devices[i], ports);
  }
  if (devices != nullptr) api->free_devices(devices);
  if (n == 0) return error(ErrorCode::Unsupported, "this host has no RDMA device");
  if (ports.empty())
    return error(ErrorCode::Unsupported, "HETCCL_RDMA_DEVICES=%s names none of this host's",
                 config.rdma_devices.c_str());
  std::stable_sort(ports.begin(), ports.end(),
                   [](const Port& a, const Port& b) { return a.name < b.name; });
  return ports;
}

}  // namespace hetccl::transport::verbs
