#include "transport/tcp/address.h"

namespace hetccl::transport::tcp {

namespace {

constexpr uint8_t kMagic = 'T';
constexpr size_t kPrefixBytes = 3;  // magic, streams, number of addresses
constexpr size_t kEach = net::SocketAddress::kEncodedBytes;

}  // namespace

Address encode(const Endpoint& endpoint) {
  const size_t count = std::min(endpoint.addresses.size(), kMaxAddresses);
  Address bytes(kPrefixBytes + count * kEach);
  bytes[0] = kMagic;
  bytes[1] = static_cast<uint8_t>(endpoint.streams);
  bytes[2] = static_cast<uint8_t>(count);
  for (size_t i = 0; i < count; ++i)
    endpoint.addresses[i].encode(bytes.data() + kPrefixBytes + i * kEach);
  return bytes;
}

Result<Endpoint> decode(const Address& address) {
  const bool sound = address.size() >= kPrefixBytes && address[0] == kMagic && address[1] >= 1 &&
                     address[1] <= kMaxStreams && address[2] >= 1 && address[2] <= kMaxAddresses &&
                     address.size() == kPrefixBytes + address[2] * kEach;
  if (!sound)
    return error(ErrorCode::InvalidArgument, "%zu bytes that are not an address of transport tcp",
                 address.size());
  Endpoint endpoint;
  endpoint.streams = address[1];
  for (size_t i = 0; i < address[2]; ++i) {
    HETCCL_ASSIGN(const net::SocketAddress one,
                  net::SocketAddress::decode(address.data() + kPrefixBytes + i * kEach));
    endpoint.addresses.push_back(one);
  }
  return endpoint;
}

}  // namespace hetccl::transport::tcp
