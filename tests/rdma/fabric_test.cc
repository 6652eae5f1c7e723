// What ranks tell each other of their ports, and what they make of it.
#include "transport/verbs/fabric.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include "transport/verbs/frame.h"
#include "transport/verbs/locked_memory.h"
#include "transport/verbs/queue_pair.h"

namespace hetccl::transport::verbs {
namespace {

Offer roce(uint8_t last, uint8_t type = abi::kGidRoceV2) {
  Offer offer{abi::kLinkEthernet, type, {}};
  offer.gid.raw[10] = offer.gid.raw[11] = 0xff;
  offer.gid.raw[12] = 10;
  offer.gid.raw[15] = last;
  return offer;
}

Offer infiniband(uint8_t subnet) {
  Offer offer{abi::kLinkInfiniBand, abi::kGidIb, {}};
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
  for (size_t n = 0; n < bytes.size() - endpoint.listener.size(); ++n)
    CHECK_FALSE(decode(Address(bytes.begin(), bytes.begin() + static_cast<long>(n))).ok());
  CHECK_FALSE(decode(Address(40, 0xee)).ok());
}

TEST_CASE("both ends choose the same two ports, and only on a common fabric") {
  const std::vector<Offer> two = {roce(1), roce(2)}, one = {roce(3)};
  const std::vector<Offer> mixed = {infiniband(1), roce(4)}, other = {infiniband(2)};
  const auto check = [](const auto& own, const auto& theirs, int self, int peer) {
    const auto here = choose_pair(own, theirs, self, peer);
    const auto there = choose_pair(theirs, own, peer, self);
    REQUIRE(here.has_value() == there.has_value());
    if (here) CHECK(*here == std::pair{there->second, there->first});
    return here;
  };
  CHECK(check(two, two, 0, 1) == std::pair<size_t, size_t>{1, 1});
  CHECK(check(two, two, 0, 2) == std::pair<size_t, size_t>{0, 0});
  CHECK(check(two, one, 0, 1) == std::pair<size_t, size_t>{0, 0});
  CHECK(check(mixed, one, 5, 1) == std::pair<size_t, size_t>{1, 0});
  CHECK_FALSE(check(mixed, other, 0, 1));
  CHECK_FALSE(check(one, std::vector<Offer>{roce(3, abi::kGidRoceV1)}, 0, 1));
  CHECK_FALSE(check(one, std::vector<Offer>{}, 0, 1));
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
