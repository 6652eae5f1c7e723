#include "bootstrap/unique_id.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>

namespace hetccl::bootstrap {

namespace {

constexpr std::array<uint8_t, 8> kMagic = {'h', 'e', 't', 'c', 'c', 'l', 'i', 1};
// Keeps these secrets apart from all else that a parent's secret authenticates.
constexpr std::string_view kChildContext = "hetccl split";
constexpr size_t kCommunicatorAt = kMagic.size();
constexpr size_t kSecretAt = kCommunicatorAt + 8;
constexpr size_t kAddressesAt = kSecretAt + net::kSecretBytes;
constexpr size_t kAddressBytes = net::SocketAddress::kEncodedBytes;
static_assert(kAddressesAt + kMaxAddresses * kAddressBytes == sizeof(UniqueId));

net::SocketAddress with_port(const net::SocketAddress& address, uint16_t port) {
  std::array<uint8_t, kAddressBytes> bytes;
  address.encode(bytes.data());
  bytes[2] = static_cast<uint8_t>(port >> 8);
  bytes[3] = static_cast<uint8_t>(port & 0xff);
  return net::SocketAddress::decode(bytes.data()).value();
}

}  // namespace

UniqueId encode(const Invitation& invitation) {
  UniqueId id{};
  std::copy(kMagic.begin(), kMagic.end(), id.begin());
  for (size_t i = 0; i < 8; ++i) {
    id[kCommunicatorAt + i] = static_cast<uint8_t>(invitation.communicator >> (8 * i));
  }
  std::copy_n(invitation.secret.begin(), net::kSecretBytes, id.begin() + kSecretAt);
  const size_t n_addresses = std::min(invitation.addresses.size(), kMaxAddresses);
  for (size_t i = 0; i < n_addresses; ++i) {
    invitation.addresses[i].encode(id.data() + kAddressesAt + i * kAddressBytes);
  }
  return id;
}

Result<Invitation> decode(const UniqueId& id) {
  if (!std::equal(kMagic.begin(), kMagic.end() - 1, id.begin())) {
    return error(Code::InvalidArgument,
                 "the unique id is not one that hetccl made: pass all 128 bytes on unchanged");
  }
  if (id[kMagic.size() - 1] != kMagic.back()) {
    return error(
        Code::InvalidArgument,
        "the unique id has version %d, this library speaks version %d: use the same hetccl "
        "on every rank",
        id[kMagic.size() - 1], kMagic.back());
  }
  Invitation invitation;
  for (size_t i = 0; i < 8; ++i) {
    invitation.communicator |= static_cast<uint64_t>(id[kCommunicatorAt + i]) << (8 * i);
  }
  invitation.secret.assign(id.begin() + kSecretAt, id.begin() + kAddressesAt);
  for (size_t i = 0; i < kMaxAddresses; ++i) {
    const uint8_t* encoded = id.data() + kAddressesAt + i * kAddressBytes;
    if (encoded[0] == 0) continue;
    auto address = net::SocketAddress::decode(encoded);
    if (!address.ok()) return address.status().with("the unique id is damaged");
    invitation.addresses.push_back(address.value());
  }
  if (invitation.addresses.empty()) {
    return error(Code::InvalidArgument, "the unique id is damaged: it names no address");
  }
  return invitation;
}

net::Secret child_secret(const net::Secret& parent, uint64_t communicator) {
  std::array<uint8_t, kChildContext.size() + 8> context{};
  std::copy(kChildContext.begin(), kChildContext.end(), context.begin());
  for (size_t i = 0; i < 8; ++i) {
    context[kChildContext.size() + i] = static_cast<uint8_t>(communicator >> (8 * i));
  }
  const net::Mac mac = net::authenticate(parent, context.data(), context.size());
  return {mac.begin(), mac.end()};
}

UniqueId conceal(const UniqueId& id) {
  UniqueId concealed = id;
  std::fill_n(concealed.begin() + kSecretAt, net::kSecretBytes, uint8_t{0});
  return concealed;
}

Result<UniqueId> reveal(const UniqueId& concealed, const Session& parent) {
  HETCCL_ASSIGN(Invitation invitation, decode(concealed));
  invitation.secret = child_secret(parent.secret(), invitation.communicator);
  return encode(invitation);
}

std::vector<net::SocketAddress> choose_addresses(const std::vector<net::Interface>& interfaces,
                                                 uint16_t port) {
  std::vector<net::SocketAddress> first, further;
  std::set<std::string> seen;
  for (const net::Interface& interface : interfaces) {
    (seen.insert(interface.name).second ? first : further)
        .push_back(with_port(interface.address, port));
  }
  first.insert(first.end(), further.begin(), further.end());
  first.resize(std::min(first.size(), kMaxAddresses));
  return first;
}

}  // namespace hetccl::bootstrap
