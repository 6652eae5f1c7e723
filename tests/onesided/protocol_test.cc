// Frames, metadata and greetings: decoders read everything that encoders make, and nothing else.
#include "onesided/protocol.h"

#include <doctest/doctest.h>

#include "onesided/greeting.h"

namespace hetccl::onesided {

TEST_CASE("frames come out as they went in") {
  const std::vector<Frame> frames = {
      {.kind = Frame::Kind::Put, .transfer = 7, .pieces = {{1, 2, 3}, {4, 5, kMaxPiece}}},
      {.kind = Frame::Kind::Put, .transfer = 7, .last = true, .notifies = true, .payload = {1, 2}},
      {.kind = Frame::Kind::Get, .transfer = 1, .last = true, .pieces = {{9, 0, 1}}},
      {.kind = Frame::Kind::Data, .transfer = 3, .last = true, .count = kMaxPieces},
      {.kind = Frame::Kind::Done, .transfer = 3, .code = ErrorCode::Aborted, .payload = {'x'}},
      {.kind = Frame::Kind::Done, .transfer = 3, .last = true},
      {.kind = Frame::Kind::Notify, .payload = Bytes(kMaxNotification, 5)},
      {.kind = Frame::Kind::Cancel, .transfer = UINT64_MAX},
      {.kind = Frame::Kind::Put,
       .last = true,
       .way = Frame::Way::Inline,
       .pieces = {{1, 2, kMaxInline}},
       .notifies = true,
       .payload = {3, 4},
       .data = Bytes(kMaxInline, 5)},
      {.kind = Frame::Kind::Data, .way = Frame::Way::Inline, .count = 2, .data = {1, 2, 3}},
  };
  for (const Frame& frame : frames) {
    const Bytes bytes = encode(frame);
    const auto read = decode(bytes);
    REQUIRE(read.has_value());
    CHECK(*read == frame);
    const size_t head = bytes.size() - frame.data.size();  // its receiver counts the data
    for (size_t n = 0; n < head; n += 1 + n / 16) {
      CHECK_FALSE(decode(std::span(bytes).first(n)).has_value());
    }
  }
}

TEST_CASE("what is no frame is refused") {
  Frame put{.kind = Frame::Kind::Put, .transfer = 1, .pieces = {{1, 2, 3}}};
  put.pieces[0].bytes = 0;
  CHECK_FALSE(decode(encode(put)).has_value());
  put.pieces[0].bytes = kMaxPiece + 1;
  CHECK_FALSE(decode(encode(put)).has_value());
  put.pieces.assign(kMaxPieces + 1, {1, 0, 1});
  CHECK_FALSE(decode(encode(put)).has_value());
  CHECK_FALSE(decode(encode(Frame{.kind = static_cast<Frame::Kind>(9)})).has_value());
  CHECK_FALSE(decode(encode(Frame{.kind = Frame::Kind::Cancel, .last = true})).has_value());
  CHECK_FALSE(decode(encode(Frame{.kind = Frame::Kind::Cancel, .payload = {1}})).has_value());
  Frame data{.kind = Frame::Kind::Data, .way = Frame::Way::Inline, .count = 1};
  data.data.resize(kMaxInline + 1);
  CHECK_FALSE(decode(encode(data)).has_value());
  data.data.resize(1);
  for (const auto way :
       {Frame::Way::OneByOne, Frame::Way::Runs, Frame::Way::Lists, Frame::Way::Window}) {
    data.way = way;
    CHECK_FALSE(decode(encode(data)).has_value());
  }
  CHECK_FALSE(decode(encode(Frame{.kind = Frame::Kind::Get, .way = Frame::Way::Inline})));
  const Bytes text(kMaxText + 1);
  CHECK_FALSE(decode(encode(Frame{.kind = Frame::Kind::Done, .payload = text})).has_value());
}

TEST_CASE("metadata comes out as it went in, and what is none is refused by name") {
  Metadata metadata{"decode-0", {}, {{5, 100, 3, "layer 0"}}};
  metadata.door.fill(0xab);
  const std::string text = encode(metadata);
  const auto read = metadata_from(text);
  REQUIRE(read.ok());
  CHECK(read.value().name == "decode-0");
  CHECK(read.value().door == metadata.door);
  CHECK(read.value().regions[0].label == "layer 0");
  for (const char* wrong : {"", "{}", "[]", R"({"hetccl_endpoint":1})"}) {
    CHECK(metadata_from(wrong).status().code() == ErrorCode::InvalidArgument);
  }
  std::string other = text;
  other.replace(other.find(":2"), 2, ":9");
  CHECK(metadata_from(other).status().message().find("version 9") != std::string::npos);
  std::string shorter = text;
  shorter.erase(shorter.find("abab"), 2);
  CHECK_FALSE(metadata_from(shorter).ok());
}

TEST_CASE("greetings come out as they went in") {
  Greeting greeting{kProtocol, "a", "host", "name", 5, true, 7, {{"tcp", {1, 2, 3}}}};
  const auto read = greeting_from(encode(greeting));
  REQUIRE(read.ok());
  CHECK(read.value().addresses == greeting.addresses);
  CHECK(read.value().shares_memory);
  greeting.protocol = 9;
  CHECK(greeting_from(encode(greeting)).status().code() == ErrorCode::RemoteError);
  CHECK_FALSE(greeting_from({'x'}).ok());
}

}  // namespace hetccl::onesided
