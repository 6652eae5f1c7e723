#include "transport/ncclnet/fabric.h"

#include "transport/rail.h"

namespace hetccl::transport::ncclnet {
namespace {

constexpr uint8_t kNetMagic = 'N';
constexpr size_t kHeadBytes = 3;  // magic, number of devices, bytes of the name

}  // namespace

Address encode(const Endpoint& endpoint) {
  Address bytes;
  bytes.reserve(kHeadBytes + endpoint.network.size() + endpoint.listener.size());
  bytes.push_back(kNetMagic);
  bytes.push_back(static_cast<uint8_t>(endpoint.devices));
  bytes.push_back(static_cast<uint8_t>(endpoint.network.size()));
  bytes.insert(bytes.end(), endpoint.network.begin(), endpoint.network.end());
  bytes.insert(bytes.end(), endpoint.listener.begin(), endpoint.listener.end());
  return bytes;
}

Result<Endpoint> decode(const Address& address) {
  const bool sound = address.size() > kHeadBytes && address[0] == kNetMagic && address[1] >= 1 &&
                     address[1] <= Plugin::kMaxDevices && address[2] <= Plugin::kMaxName &&
                     address.size() > kHeadBytes + address[2];
  if (!sound)
    return error(ErrorCode::InvalidArgument,
                 "%zu bytes that are not an address of transport ncclnet", address.size());
  const auto name = address.begin() + kHeadBytes;
  return Endpoint{std::string(name, name + address[2]), address[1],
                  Address(name + address[2], address.end())};
}

size_t choose_device(const std::vector<Device>& devices, const net::BusLocation& own, int self,
                     int peer) {
  std::vector<size_t> nearest;
  int least = net::kSystem;
  for (size_t i = 0; i < devices.size(); ++i) {
    const int distance = net::distance_between(own, devices[i].place);
    if (distance < least) nearest.clear();
    least = std::min(least, distance);
    if (distance == least) nearest.push_back(i);
  }
  return nearest[rail_of(self, peer, nearest.size())];
}

}  // namespace hetccl::transport::ncclnet
