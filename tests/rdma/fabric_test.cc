// The ports that ranks announce to each other, and the pairs that they choose.
#include "transport/verbs/fabric.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "transport/verbs/frame.h"
#include "transport/verbs/queue_pair.h"

namespace hetccl::transport::verbs {
namespace {

Offer at(std::array<uint8_t, 4> address, uint8_t prefix_bits = 24, uint32_t mbps = 100'000) {
  Offer offer{abi::kLinkEthernet, abi::kGidRoceV2, prefix_bits, mbps, {}};
  offer.gid.raw[10] = offer.gid.raw[11] = 0xff;
  std::copy(address.begin(), address.end(), offer.gid.raw + 12);
  return offer;
}

Offer roce(uint8_t last, uint8_t type = abi::kGidRoceV2) {
  Offer offer = at({10, 0, 0, last});
  offer.gid_type = type;
  return offer;
}

Offer v6(std::initializer_list<uint8_t> first, uint8_t last) {
  Offer offer{abi::kLinkEthernet, abi::kGidRoceV2, 64, 0, {}};
  std::copy(first.begin(), first.end(), offer.gid.raw);
  offer.gid.raw[15] = last;
  return offer;
}

Offer infiniband(uint8_t subnet) {
  Offer offer{abi::kLinkInfiniBand, abi::kGidIb, 0, 200'000, {}};
  offer.gid.raw[7] = subnet;
  offer.gid.raw[15] = 1;
  return offer;
}

TEST_CASE("an address says what was put in, and junk is refused") {
  const Endpoint endpoint{{roce(1), infiniband(3)}, {'T', 1, 2, 3}};
  const Address bytes = encode(endpoint);
  const auto read = decode(bytes);
  REQUIRE(read.ok());
  CHECK(read.value().listener == endpoint.listener);
  REQUIRE(read.value().offers.size() == 2);
  CHECK(read.value().offers[1].gid.raw[7] == 3);
  CHECK(read.value().offers[1].mbps == 200'000);
  CHECK(read.value().offers[0].prefix_bits == 24);
  for (size_t n = 0; n < bytes.size() - endpoint.listener.size(); ++n)
    CHECK_FALSE(decode(Address(bytes.begin(), bytes.begin() + static_cast<long>(n))).ok());
  CHECK_FALSE(decode(Address(40, 0xee)).ok());
}

std::optional<std::pair<size_t, size_t>> check(const std::vector<Offer>& own,
                                               const std::vector<Offer>& theirs, int self, int peer,
                                               Reach least = Reach::Routed) {
  const auto here = choose_pair({self, peer, own, theirs, least});
  const auto there = choose_pair({peer, self, theirs, own, least});
  REQUIRE(here.has_value() == there.has_value());
  if (here) CHECK(*here == std::pair{there->second, there->first});
  return here;
}

TEST_CASE("both ends choose the same two ports, and only on a common fabric") {
  const std::vector<Offer> two = {roce(1), roce(2)}, one = {roce(3)};
  const std::vector<Offer> mixed = {infiniband(1), roce(4)}, other = {infiniband(2)};
  CHECK(check(two, two, 0, 1) == std::pair<size_t, size_t>{0, 0});
  CHECK(check(two, two, 1, 2) == std::pair<size_t, size_t>{1, 1});
  CHECK(check(two, one, 0, 1) == std::pair<size_t, size_t>{0, 0});
  CHECK(check(mixed, one, 5, 1) == std::pair<size_t, size_t>{1, 0});
  CHECK_FALSE(check(mixed, other, 0, 1));
  CHECK_FALSE(check(one, std::vector<Offer>{roce(3, abi::kGidRoceV1)}, 0, 1));
  CHECK_FALSE(check(one, std::vector<Offer>{}, 0, 1));
}

TEST_CASE("ranks at one place of two hosts, and all pairs of two hosts, use all rails alike") {
  constexpr int kRanks = 8;
  for (const size_t ports : {2UL, 8UL}) {
    CAPTURE(ports);
    std::vector<Offer> offers;
    for (size_t i = 0; i < ports; ++i) offers.push_back(at({10, 0, static_cast<uint8_t>(i), 1}));
    std::vector<int> alike(ports), all(ports);
    for (int i = 0; i < kRanks; ++i) {
      const auto pair = check(offers, offers, i, i + kRanks);
      CHECK(pair->first == static_cast<size_t>(i) % ports);
      CHECK(pair->second == pair->first);
      ++alike[pair->first];
      for (int j = 0; j < kRanks; ++j) ++all[check(offers, offers, j + kRanks, i)->first];
    }
    CHECK(alike == std::vector<int>(ports, kRanks / static_cast<int>(ports)));
    CHECK(all == std::vector<int>(ports, kRanks * kRanks / static_cast<int>(ports)));
  }
}

TEST_CASE("the fastest ports are used, though they are no rails") {
  const std::vector<Offer> one = {at({10, 0, 0, 1}, 24, 10'000), at({10, 0, 0, 2}, 24, 100'000)};
  const std::vector<Offer> other = {at({10, 0, 0, 3}, 24, 100'000), at({10, 0, 0, 4}, 24, 25'000)};
  for (int peer = 1; peer < 5; ++peer)
    CHECK(check(one, other, 0, peer) == std::pair<size_t, size_t>{1, 0});
  // One subnet comes before speed.
  const std::vector<Offer> far = {at({10, 0, 1, 3}, 24, 400'000), at({10, 0, 0, 4}, 24, 10'000)};
  CHECK(check(one, far, 0, 1) == std::pair<size_t, size_t>{1, 1});
}

// A host's ports in one subnet, and how far each is from a rank's device.
std::vector<Offer> ports(const std::vector<int>& distances, uint32_t mbps = 100'000) {
  std::vector<Offer> offers;
  for (const int distance : distances) {
    offers.push_back(at({10, 0, 0, static_cast<uint8_t>(offers.size() + 1)}, 24, mbps));
    offers.back().distance = static_cast<uint8_t>(distance);
  }
  return offers;
}

TEST_CASE("ranks use the ports nearest to their devices, rails or not, in turn among equals") {
  using net::kRoot, net::kSwitch, net::kSystem;
  using Pair = std::pair<size_t, size_t>;
  const auto first = ports({kSwitch, kRoot, kSystem, kSystem}),
             last = ports({kSystem, kSystem, kRoot, kSwitch});
  for (int peer = 1; peer < 5; ++peer) {
    CHECK(check(first, first, 0, peer) == Pair{0, 0});
    CHECK(check(first, last, 0, peer) == Pair{0, 3});
  }
  // Two ports that are equally near take turns by rail: both carry.
  const auto two = ports({kSystem, kSwitch, kSwitch});
  CHECK(check(two, two, 4, 9) == Pair{1, 1});
  CHECK(check(two, two, 5, 9) == Pair{2, 2});
  // A port whose subnet the other end does not reach is not used, however near it is.
  auto apart = ports({kSwitch, kSystem});
  apart[0].gid.raw[14] = 9;
  CHECK(check(apart, ports({kSystem, kSystem}), 0, 1)->first == 1);
  // A slower port is not used, either.
  auto slow = ports({kSwitch, kSystem});
  slow[0].mbps = 25'000;
  CHECK(check(slow, ports({kSystem, kSystem}), 0, 1)->first == 1);
}

TEST_CASE("a greeting says how far each port is, and how many queue pairs; junk is refused") {
  const Ends there{1, 0, ports({1, 5, 0}), ports({0, 0}), Reach::Subnet, 2};
  Ends here{0, 1, ports({0, 0}), ports({0, 0, 0}), Reach::Subnet, 4};
  REQUIRE(take_greeting(greet(there), here).ok());
  CHECK(here.theirs[0].distance == 1);
  CHECK(here.theirs[1].distance == 5);
  CHECK(here.theirs[2].distance == 0);
  CHECK(here.queues == 2);
  CHECK(take_greeting({kMostQueues, 1, 5, net::kSystem}, here).ok());
  CHECK(here.queues == 2);
  CHECK_FALSE(take_greeting({1, 1, 5, net::kSystem + 1}, here).ok());
  CHECK_FALSE(take_greeting({1, 1, 5, 0, 1}, here).ok());  // a port that there is not
  CHECK_FALSE(take_greeting({0, 1, 5, 0}, here).ok());
  CHECK_FALSE(take_greeting({kMostQueues + 1, 1, 5, 0}, here).ok());
}

TEST_CASE("ports in networks that may not reach each other are for who names the transport") {
  const auto between = [](const Offer& a, const Offer& b) {
    CHECK(reach_between(a, b) == reach_between(b, a));
    return reach_between(a, b);
  };
  CHECK(between(at({192, 168, 1, 1}), at({192, 168, 1, 2})) == Reach::Subnet);
  CHECK(between(at({192, 168, 1, 1}), at({192, 168, 2, 2})) == Reach::Named);
  CHECK(between(at({192, 168, 1, 1}, 16), at({192, 168, 2, 2}, 16)) == Reach::Subnet);
  CHECK(between(at({10, 1, 0, 1}), at({10, 2, 0, 1})) == Reach::Routed);
  CHECK(between(at({172, 16, 0, 1}), at({172, 31, 0, 1})) == Reach::Routed);
  CHECK(between(at({10, 1, 0, 1}), at({172, 16, 0, 1})) == Reach::Named);
  CHECK(between(at({10, 1, 0, 1}, 0), at({10, 1, 0, 2}, 0)) == Reach::Routed);
  CHECK(between(at({8, 1, 0, 1}), at({9, 1, 0, 1})) == Reach::Routed);
  CHECK(between(at({169, 254, 0, 1}), at({169, 254, 1, 1})) == Reach::Named);
  CHECK(between(v6({0x20, 1, 1}, 1), v6({0x20, 1, 2}, 1)) == Reach::Routed);
  CHECK(between(v6({0xfd, 1, 1, 1, 1, 1, 1}, 1), v6({0xfd, 1, 1, 1, 1, 1, 2}, 1)) == Reach::Routed);
  CHECK(between(v6({0xfd, 1}, 1), v6({0xfd, 2}, 1)) == Reach::Named);
  CHECK(between(v6({0xfe, 0x80}, 1), v6({0xfe, 0x80}, 2)) == Reach::Subnet);
  CHECK(between(roce(1), infiniband(1)) == Reach::None);
  Offer v1 = at({10, 1, 0, 1});
  v1.gid_type = abi::kGidRoceV1;
  Offer other = at({10, 2, 0, 1});
  other.gid_type = abi::kGidRoceV1;
  CHECK(between(v1, other) == Reach::Named);
  const std::vector<Offer> cable = {at({192, 168, 1, 1})}, office = {at({192, 168, 2, 1})};
  CHECK_FALSE(check(cable, office, 0, 1));
  CHECK(check(cable, office, 0, 1, Reach::Named));
}

TEST_CASE("frames, grants and queue pairs survive the wire") {
  uint8_t bytes[kFrameBytes + kGrantBytes] = {};
  encode(Frame{FrameKind::Grant, 9}, bytes);
  const auto frame = decode_frame(bytes, sizeof bytes);
  REQUIRE(frame.ok());
  CHECK(frame.value().kind == FrameKind::Grant);
  CHECK(frame.value().credits == 9);
  CHECK_FALSE(decode_frame(bytes, sizeof bytes - 1).ok());
  encode(Frame{FrameKind::Credits, kCredits + 1}, bytes);
  CHECK_FALSE(decode_frame(bytes, sizeof bytes).ok());
  bytes[0] = 0;
  CHECK_FALSE(decode_frame(bytes, sizeof bytes).ok());
  uint8_t grant_bytes[kGrantBytes];
  encode(Grant{1, 2, 3, 0x123456789abcULL, 5, 6}, grant_bytes);
  const Grant grant = decode_grant(grant_bytes);
  CHECK(grant.address == 0x123456789abcULL);
  CHECK(grant.key == 5);
  CHECK(grant.index == 6);
  uint8_t qp[kQpAddressBytes];
  encode(QpAddress{77, 88, 9, 5, roce(7).gid}, qp);
  const auto read = decode_qp(qp);
  REQUIRE(read.ok());
  CHECK(read.value().number == 77);
  CHECK(read.value().gid.raw[15] == 7);
  qp[0] = 99;
  CHECK_FALSE(decode_qp(qp).ok());
}

}  // namespace
}  // namespace hetccl::transport::verbs
