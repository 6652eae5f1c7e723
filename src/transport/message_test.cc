#include "transport/message.h"

#include <doctest/doctest.h>

#include <cstring>

namespace hetccl::transport {
namespace {

Header sample() {
  Header header;
  header.number = 7;
  header.offset = 1 << 20;
  header.bytes = 4096;
  header.total = 3ULL << 32;
  header.info = {0x1122334455667788,
                 9,
                 3,
                 5,
                 {Collective::AllReduce, DataType::Float32, RedOp::Sum, -1, 10},
                 77,
                 5};
  return header;
}

Parcel posting(const Header& header) {
  return {nullptr, static_cast<size_t>(header.total), header.info};
}

TEST_CASE("a header survives the wire, in little endian") {
  uint8_t wire[kHeaderBytes];
  std::memset(wire, 0xee, sizeof wire);
  encode(sample(), wire);
  CHECK(wire[8] == 7);
  CHECK(wire[40] == 0x88);
  CHECK(wire[kHeaderBytes - 1] == 0);
  auto back = decode(wire);
  REQUIRE(back.ok());
  CHECK(back->number == 7);
  CHECK(back->offset == 1 << 20);
  CHECK(back->bytes == 4096);
  CHECK(back->total == 3ULL << 32);
  CHECK(back->info.beside == 77);
  CHECK(back->info.round == 5);
  CHECK(check(*back, posting(sample()), 1).ok());
}

TEST_CASE("what is no header is refused") {
  uint8_t wire[kHeaderBytes];
  for (const size_t broken : {size_t{0}, size_t{7}, size_t{64}, size_t{65}, kHeaderBytes - 1}) {
    encode(sample(), wire);
    wire[broken] = 0xff;
    CHECK(decode(wire).status().code() == ErrorCode::RemoteError);
  }
  for (int fault = 0; fault < 4; ++fault) {
    Header header = sample();
    if (fault == 0) header.offset = header.total + 1;
    if (fault == 1) header.bytes = header.total;
    if (fault == 2) header.bytes = ~0ULL;
    if (fault == 3) header.bytes = 0;
    encode(header, wire);
    CHECK(decode(wire).status().code() == ErrorCode::RemoteError);
  }
}

TEST_CASE("differences are explained with both calls") {
  const Header header = sample();
  Parcel posted = posting(header);
  posted.info.signature.count = 12;
  Status status = check(header, posted, 1);
  CHECK(status.code() == ErrorCode::InvalidUsage);
  CHECK(status.message().find("rank 1 called all_reduce (10 float32, sum)") != std::string::npos);
  CHECK(status.message().find("this rank called all_reduce (12 float32, sum)") !=
        std::string::npos);

  for (int field = 0; field < 7; ++field) {
    posted = posting(header);
    if (field == 0) posted.bytes -= 1;
    if (field == 1) posted.info.communicator += 1;
    if (field == 2) posted.info.sequence += 1;
    if (field == 3) posted.info.slice += 1;
    if (field == 4) posted.info.step += 1;
    if (field == 5) posted.info.beside += 1;
    if (field == 6) posted.info.round += 1;
    status = check(header, posted, 1);
    CHECK(status.code() == ErrorCode::InvalidUsage);
    CHECK(status.message().find("rank 1") != std::string::npos);
  }
}

TEST_CASE("the two ends of a message are told of each other") {
  Header header;
  header.info.signature = {
      .collective = Collective::PointToPoint, .type = DataType::Float32, .count = 12};
  header.total = 48;
  Parcel posted;
  posted.info = header.info;
  posted.bytes = 48;
  CHECK(check(header, posted, 1).ok());
  posted.info.signature.count = 10;
  CHECK(check(header, posted, 1).message() ==
        "rank 1 sends 12 float32, tag 0, where this rank receives 10 float32, tag 0; messages from "
        "one rank to another meet in the order of the calls, and both ends pass the same");
}

}  // namespace
}  // namespace hetccl::transport
