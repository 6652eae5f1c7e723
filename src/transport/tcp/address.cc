#include "transport/tcp/address.h"

#include <algorithm>

namespace hetccl::transport::tcp {

namespace {

constexpr uint8_t kMagic = 'T';
constexpr size_t kPrefixBytes = 3;  // magic, streams, number of addresses
// Each address is: itself, prefix bits, Mbit/s (big endian), length of the NIC's name, and the
// name, padded with zeros.
constexpr size_t kRateAt = net::SocketAddress::kEncodedBytes + 1;
constexpr size_t kNameAt = kRateAt + 4 + 1;
constexpr size_t kEach = kNameAt + kMaxCardName;
constexpr int kMostPrefixBits = 128;

void encode(const CardOf& card, uint8_t* out) {
  const auto mbps = static_cast<uint32_t>(std::clamp<int64_t>(card.mbps, 0, UINT32_MAX));
  out[kRateAt - 1] = static_cast<uint8_t>(card.prefix_bits);
  for (size_t i = 0; i < 4; ++i) out[kRateAt + i] = static_cast<uint8_t>(mbps >> 8 * (3 - i));
  const size_t length = std::min(card.name.size(), kMaxCardName);
  out[kNameAt - 1] = static_cast<uint8_t>(length);
  std::copy_n(card.name.begin(), length, out + kNameAt);
}

// Returns false if `in` is no NIC. Names must be printable, because errors show them.
bool decode(const uint8_t* in, CardOf* card) {
  const size_t length = in[kNameAt - 1];
  if (in[kRateAt - 1] > kMostPrefixBits || length > kMaxCardName) return false;
  card->prefix_bits = in[kRateAt - 1];
  for (size_t i = 0; i < 4; ++i) card->mbps = card->mbps << 8 | in[kRateAt + i];
  card->name.assign(in + kNameAt, in + kNameAt + length);
  return std::all_of(card->name.begin(), card->name.end(),
                     [](char c) { return c > 0x20 && c < 0x7f && c != '/'; }) &&
         std::all_of(in + kNameAt + length, in + kEach, [](uint8_t byte) { return byte == 0; });
}

}  // namespace

Endpoint endpoint_of(const std::vector<net::Interface>& interfaces,
                     const std::vector<std::string>& cards, uint16_t port, uint32_t streams) {
  Endpoint endpoint;
  endpoint.streams = streams;
  for (const net::Interface& one : interfaces) {
    if (endpoint.addresses.size() == kMaxAddresses) break;
    endpoint.addresses.push_back(one.address.with_port(port));
    const bool counts = std::find(cards.begin(), cards.end(), one.name) != cards.end();
    endpoint.cards.push_back(counts ? CardOf{one.name, one.prefix_bits, one.mbps} : CardOf{});
  }
  return endpoint;
}

Address encode(const Endpoint& endpoint) {
  const size_t count = std::min(endpoint.addresses.size(), kMaxAddresses);
  Address bytes(kPrefixBytes + count * kEach);
  bytes[0] = kMagic;
  bytes[1] = static_cast<uint8_t>(endpoint.streams);
  bytes[2] = static_cast<uint8_t>(count);
  for (size_t i = 0; i < count; ++i) {
    uint8_t* const out = bytes.data() + kPrefixBytes + i * kEach;
    endpoint.addresses[i].encode(out);
    if (i < endpoint.cards.size()) encode(endpoint.cards[i], out);
  }
  return bytes;
}

Result<Endpoint> decode(const Address& address) {
  const auto malformed = [&] {
    return error(ErrorCode::InvalidArgument, "%zu bytes that are not an address of transport tcp",
                 address.size());
  };
  const bool sound = address.size() >= kPrefixBytes && address[0] == kMagic && address[1] >= 1 &&
                     address[1] <= kMaxStreams && address[2] >= 1 && address[2] <= kMaxAddresses &&
                     address.size() == kPrefixBytes + address[2] * kEach;
  if (!sound) return malformed();
  Endpoint endpoint;
  endpoint.streams = address[1];
  for (size_t i = 0; i < address[2]; ++i) {
    const uint8_t* const in = address.data() + kPrefixBytes + i * kEach;
    HETCCL_ASSIGN(const net::SocketAddress one, net::SocketAddress::decode(in));
    endpoint.addresses.push_back(one);
    CardOf card;
    if (!decode(in, &card)) return malformed();
    endpoint.cards.push_back(std::move(card));
  }
  return endpoint;
}

}  // namespace hetccl::transport::tcp
