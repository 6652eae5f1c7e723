#include "bootstrap/unique_id.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "base/host_identity.h"

namespace hetccl::bootstrap {

namespace {

constexpr std::array<uint8_t, 8> kMagic = {'h', 'e', 't', 'c', 'c', 'l', 'i', 2};
// Separates these secrets from other uses of a parent's secret.
constexpr std::string_view kChildContext = "hetccl split";
constexpr std::string_view kHostContext = "hetccl host ";
constexpr size_t kCommunicatorAt = kMagic.size();
constexpr size_t kSecretAt = kCommunicatorAt + 8;
constexpr size_t kAddressesAt = kSecretAt + net::kSecretBytes;
constexpr size_t kAddressBytes = net::SocketAddress::kEncodedBytes;
static_assert(kAddressesAt + kMaxAddresses * kAddressBytes == sizeof(UniqueId));
// Stands for the last address: an invalid address family, followed by the mark.
constexpr uint8_t kHostMark = 3;
constexpr size_t kLastAddressAt = kAddressesAt + (kMaxAddresses - 1) * kAddressBytes;
constexpr size_t kHostMarkAt = kLastAddressAt + kAddressBytes - sizeof(HostMark);

/// Returns zeros if the system gives no identity.
HostMark own_mark(const net::Secret& secret) {
  HostMark mark{};
  const std::string identity = network_identity();
  if (identity.empty()) return mark;
  const std::string context = std::string(kHostContext) + identity;
  const net::Mac mac = net::authenticate(secret, context.data(), context.size());
  std::copy_n(mac.begin(), mark.size(), mark.begin());
  return mark;
}

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
  if (invitation.host != HostMark{} && n_addresses < kMaxAddresses) {
    id[kLastAddressAt] = kHostMark;
    std::copy(invitation.host.begin(), invitation.host.end(), id.begin() + kHostMarkAt);
  }
  return id;
}

Result<Invitation> decode(const UniqueId& id) {
  if (!std::equal(kMagic.begin(), kMagic.end() - 1, id.begin())) {
    return error(ErrorCode::InvalidArgument,
                 "the unique id is not one that hetccl made: pass all 128 bytes on unchanged");
  }
  if (id[kMagic.size() - 1] != kMagic.back()) {
    return error(
        ErrorCode::InvalidArgument,
        "the unique id has version %d, this library speaks version %d: use the same hetccl "
        "on every rank",
        id[kMagic.size() - 1], kMagic.back());
  }
  Invitation invitation;
  for (size_t i = 0; i < 8; ++i) {
    invitation.communicator |= static_cast<uint64_t>(id[kCommunicatorAt + i]) << (8 * i);
  }
  invitation.secret.assign(id.begin() + kSecretAt, id.begin() + kAddressesAt);
  const bool marked = id[kLastAddressAt] == kHostMark;
  if (marked) std::copy_n(id.begin() + kHostMarkAt, sizeof(HostMark), invitation.host.begin());
  for (size_t i = 0; i < kMaxAddresses - (marked ? 1 : 0); ++i) {
    const uint8_t* encoded = id.data() + kAddressesAt + i * kAddressBytes;
    if (encoded[0] == 0) continue;
    auto address = net::SocketAddress::decode(encoded);
    if (!address.ok()) return address.status().with("the unique id is damaged");
    invitation.addresses.push_back(address.value());
  }
  if (invitation.addresses.empty()) {
    return error(ErrorCode::InvalidArgument, "the unique id is damaged: it names no address");
  }
  return invitation;
}

void mark_host(Invitation& invitation) {
  auto& addresses = invitation.addresses;
  if (!net::are_loopback(addresses)) return;
  addresses.resize(std::min(addresses.size(), kMaxAddresses - 1));
  invitation.host = own_mark(invitation.secret);
}

Status check_host(const Invitation& invitation) {
  const HostMark own = own_mark(invitation.secret), none{};
  if (invitation.host == none || own == none || invitation.host == own) return {};
  return error(ErrorCode::InvalidArgument,
               "the unique id was made on another host, and its only address, %s, is loopback, "
               "which is this host here: where the id is made, choose an interface that all hosts "
               "reach with HETCCL_SOCKET_IFNAME",
               net::list_of(invitation.addresses).c_str());
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
