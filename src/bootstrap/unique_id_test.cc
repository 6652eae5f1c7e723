#include "bootstrap/unique_id.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>

#include <cstring>

namespace hetccl::bootstrap {
namespace {

net::SocketAddress v4(uint8_t last, uint16_t port) {
  const uint8_t bytes[20] = {
      1, 0, static_cast<uint8_t>(port >> 8), static_cast<uint8_t>(port & 255), 10, 0, 0, last};
  return net::SocketAddress::decode(bytes).value();
}

net::SocketAddress v6(uint8_t last, uint16_t port) {
  uint8_t bytes[20] = {2,    0, static_cast<uint8_t>(port >> 8), static_cast<uint8_t>(port & 255),
                       0x20, 1};
  bytes[19] = last;
  return net::SocketAddress::decode(bytes).value();
}

Invitation invitation() {
  Invitation made;
  made.communicator = 0x0123456789abcdef;
  made.secret = net::random_secret();
  made.addresses = {v4(1, 4711), v6(2, 65'535)};
  return made;
}

TEST_CASE("an id carries communicator, secret and addresses of both families") {
  const Invitation before = invitation();
  const auto after = decode(encode(before));
  REQUIRE(after.ok());
  CHECK(after.value().communicator == before.communicator);
  CHECK(after.value().secret == before.secret);
  REQUIRE(after.value().addresses.size() == 2);
  CHECK(after.value().addresses[0].text() == "10.0.0.1:4711");
  CHECK(after.value().addresses[1].text() == "[2001::2]:65535");
}

TEST_CASE("what is no id, of another version, or damaged is refused by name") {
  UniqueId id{};
  CHECK(decode(id).status().code() == ErrorCode::InvalidArgument);
  id = encode(invitation());
  id[7] = 99;
  CHECK(decode(id).status().message().find("version 99") != std::string::npos);
  id = encode(invitation());
  id[48] = 7;  // the first address's family
  CHECK(decode(id).status().message().find("damaged") != std::string::npos);
  Invitation homeless = invitation();
  homeless.addresses.clear();
  CHECK(decode(encode(homeless)).status().message().find("no address") != std::string::npos);
}

Invitation on_loopback(size_t n_addresses) {
  Invitation made = invitation();
  made.addresses.clear();
  for (size_t i = 0; i < n_addresses; ++i) {
    const uint8_t bytes[20] = {1, 0, 0x12, 0x67, 127, 0, 0, static_cast<uint8_t>(i + 1)};
    made.addresses.push_back(net::SocketAddress::decode(bytes).value());
  }
  mark_host(made);
  return made;
}

TEST_CASE("an id on loopback says on another host that it is another host's") {
  const Invitation here = decode(encode(on_loopback(1))).value();
  CHECK(here.host != HostMark{});
  CHECK(check_host(here).ok());
  CHECK(decode(encode(on_loopback(4))).value().addresses.size() == 3);
  CHECK(check_host(decode(encode(on_loopback(4))).value()).ok());
  Invitation elsewhere = here;
  elsewhere.host[0] ^= 1;  // differs as another host's mark does
  const Status refused = check_host(decode(encode(elsewhere)).value());
  CHECK(refused.code() == ErrorCode::InvalidArgument);
  CHECK(
      refused.message().starts_with("the unique id was made on another host, and its only "
                                    "address, 127.0.0.1:4711, is loopback"));
  CHECK(refused.message().find("HETCCL_SOCKET_IFNAME") != std::string::npos);
}

TEST_CASE("an id with an address that other hosts reach marks no host") {
  Invitation mixed = on_loopback(1);
  mixed.host = {};
  mixed.addresses.push_back(v4(1, 4711));
  mark_host(mixed);
  CHECK(mixed.host == HostMark{});
  CHECK(check_host(decode(encode(mixed)).value()).ok());
}

TEST_CASE("every interface is heard before a second address of one; four at most") {
  std::vector<net::Interface> interfaces;
  for (uint8_t i = 1; i <= 3; ++i) interfaces.push_back({.name = "eth0", .address = v4(i, 0)});
  interfaces.push_back({.name = "eth1", .address = v6(9, 0)});
  interfaces.push_back({.name = "eth2", .address = v4(8, 0)});
  const auto chosen = choose_addresses(interfaces, 258);
  REQUIRE(chosen.size() == kMaxAddresses);
  CHECK(chosen[0].text() == "10.0.0.1:258");
  CHECK(chosen[1].text() == "[2001::9]:258");
  CHECK(chosen[2].text() == "10.0.0.8:258");
  CHECK(chosen[3].text() == "10.0.0.2:258");
}

}  // namespace
}  // namespace hetccl::bootstrap
