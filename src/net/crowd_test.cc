#include "net/crowd.h"

#include <doctest/doctest.h>

#include <array>

namespace hetccl::net {
namespace {

SocketAddress crowd_v4(uint8_t last) {
  const std::array<uint8_t, SocketAddress::kEncodedBytes> bytes = {1, 0, 1, 2, 10, 0, 0, last};
  return SocketAddress::decode(bytes.data()).value();
}

SocketAddress crowd_v6(uint8_t subnet, uint8_t host) {
  const std::array<uint8_t, SocketAddress::kEncodedBytes> bytes = {
      2, 0, 1, 2, 0x20, 1, 0, 0, 0, 0, 0, subnet, 0, 0, 0, 0, 0, 0, 0, host};
  return SocketAddress::decode(bytes.data()).value();
}

SocketAddress mapped(uint8_t last) {
  const std::array<uint8_t, SocketAddress::kEncodedBytes> bytes = {
      2, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last};
  return SocketAddress::decode(bytes.data()).value();
}

TEST_CASE("a source is an IPv4 address, or the network of an IPv6 one") {
  CHECK(source_of(crowd_v4(1)) != source_of(crowd_v4(2)));
  CHECK(source_of(crowd_v4(1)) == source_of(mapped(1)));
  CHECK(source_of(mapped(1)) != source_of(mapped(2)));
  CHECK(source_of(crowd_v6(1, 1)) == source_of(crowd_v6(1, 2)));
  CHECK(source_of(crowd_v6(1, 1)) != source_of(crowd_v6(2, 1)));
}

TEST_CASE("the oldest goes, unless one source crowds out the others") {
  Crowd crowd(32);
  CHECK_FALSE(crowd.next_to_drop());
  crowd.add(10, 1);
  for (uint64_t i = 0; i < 4; ++i) crowd.add(20 + i, 2);
  CHECK(crowd.next_to_drop() == 10);  // four of 32 places are a fair share
  crowd.add(24, 2);
  CHECK(crowd.next_to_drop() == 20);  // five are not
  for (uint64_t i = 0; i < 6; ++i) crowd.add(30 + i, 3);
  CHECK(crowd.next_to_drop() == 30);
}

}  // namespace
}  // namespace hetccl::net
