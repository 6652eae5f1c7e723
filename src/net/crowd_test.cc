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
  std::vector<Crowd::Admission> admissions;
  const auto add = [&](uint64_t first, uint64_t count, uint64_t source) {
    for (uint64_t i = 0; i < count; ++i) admissions.push_back(crowd.add(first + i, source));
  };
  CHECK_FALSE(crowd.next_to_drop());
  add(10, 1, 1);
  add(20, 4, 2);
  CHECK(crowd.next_to_drop() == 10);  // four of 32 admissions are a fair share
  add(24, 1, 2);
  CHECK(crowd.next_to_drop() == 20);  // five are not
  add(30, 6, 3);
  CHECK(crowd.next_to_drop() == 30);
  admissions.erase(admissions.begin() + 6, admissions.begin() + 8);  // 30 and 31
  CHECK(crowd.next_to_drop() == 20);
  admissions[1] = {};  // 20
  CHECK(crowd.next_to_drop() == 10);
  admissions.clear();
  CHECK_FALSE(crowd.next_to_drop());
}

}  // namespace
}  // namespace hetccl::net
