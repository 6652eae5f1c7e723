#include "comm/card.h"

#include <doctest/doctest.h>

#include <random>

#include "base/json.h"

namespace {

using hetccl::DataType;
using hetccl::ErrorCode;
using hetccl::Json;
using hetccl::RedOp;
using hetccl::ReductionSet;
using hetccl::comm::Card;
using hetccl::comm::check_agreement;
using hetccl::comm::decode;
using hetccl::comm::encode;

Card card(int rank) {
  Card card;
  card.version = 100;
  card.agreed = "HETCCL_DEPTH=3\nHETCCL_SLICE_BYTES=0\n";
  card.info.rank = rank;
  card.info.host = "h";
  card.info.host_name = "host";
  card.info.pid = 7;
  card.info.vendor = "host";
  card.info.label = "A";
  card.info.library_reduces =
      ReductionSet::where([](DataType, RedOp op) { return !is_bitwise(op); });
  card.info.nics.push_back({"eth0", "10.0.0.1", 100'000, 2});
  card.addresses["tcp"] = {0, 1, 127, 128, 255};
  card.addresses["shm"] = {};
  card.cores = "0-3,8";
  return card;
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

Json good() {
  const auto bytes = encode(card(0));
  return Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "a card", 10'000)
      .value();
}

// Encodes a good card with one field changed.
std::vector<uint8_t> with(const char* field, const Json& value) {
  Json json = good();
  json.set(field, value);
  return bytes_of(json.dump());
}

std::vector<uint8_t> without(const char* field) {
  std::vector<Json::Member> members = *good().members();
  std::erase_if(members, [&](const Json::Member& member) { return member.name == field; });
  return bytes_of(Json(members).dump());
}

}  // namespace

TEST_CASE("a card survives the trip") {
  const Card sent = card(3);
  const auto got = decode(encode(sent));
  REQUIRE(got.ok());
  CHECK(got.value().version == sent.version);
  CHECK(got.value().agreed == sent.agreed);
  CHECK(got.value().cores == sent.cores);
  CHECK(got.value().info == sent.info);
  CHECK(got.value().addresses.at("tcp") == sent.addresses.at("tcp"));
}

TEST_CASE("a card whose texts are not UTF-8 is encoded all the same") {
  Card strange = card(0);
  strange.agreed = "HETCCL_ALGO=\xff\xfe\n";
  strange.info.model = "\xc3\x28";
  const auto got = decode(encode(strange));
  CHECK(got.ok());
}

TEST_CASE("a field that is missing or of another type is an error") {
  for (const char* field : {"version", "agreed", "info", "addresses", "cores"}) {
    CAPTURE(field);
    CHECK(decode(without(field)).status().code() == ErrorCode::RemoteError);
    for (const Json& value : {Json(), Json(true), Json(1.5), Json(-1), Json(std::vector{1, 2}),
                              Json(UINT64_MAX), Json(std::vector{std::vector{1}})}) {
      CAPTURE(value.dump());
      CHECK(!decode(with(field, value)).ok());
    }
  }
  CHECK(!decode(with("version", uint64_t{1} << 32U)).ok());
  CHECK(!decode(with("info", "{}")).ok());
  CHECK(!decode(with("info", "no JSON")).ok());
  const std::string rank = R"({"rank":0,"host":"h","vendor":"host","library_reduces":)";
  CHECK(decode(with("info", rank + "[0,0,0,0,0,0,0,0,0]}")).ok());
  CHECK(!decode(with("info", rank + "[65535,0,0,0,0,0,0,0,0]}")).ok());
  CHECK(!decode(with("info", rank + "\"all\"}")).ok());
  CHECK(!decode(with("addresses", {{"tcp", "text"}})).ok());
  CHECK(!decode(with("addresses", {{"tcp", std::vector{256}}})).ok());
  CHECK(!decode(with("addresses", {{"tcp", std::vector{-1}}})).ok());
  CHECK(!decode(with("addresses", {{"tcp", std::vector{1.5}}})).ok());
  CHECK(!decode(with("addresses", {{"tcp", std::vector<int>(5000)}})).ok());
}

TEST_CASE("a card cut anywhere is an error") {
  const auto whole = encode(card(0));
  for (size_t size = 0; size < whole.size(); ++size) {
    CHECK(!decode({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)}).ok());
  }
}

TEST_CASE("bytes that were changed are read or refused, never a crash") {
  std::mt19937 random(11);
  const auto whole = encode(card(0));
  for (int round = 0; round < 5000; ++round) {
    auto bytes = whole;
    for (int i = 0; i < 1 + round % 4; ++i) {
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    }
    const auto got = decode(bytes);
    CHECK((got.ok() || !got.status().message().empty()));
  }
}

TEST_CASE("what is huge or nested deeply is an error") {
  CHECK(!decode(std::vector<uint8_t>(1 << 20, '[')).ok());
  CHECK(!decode(std::vector<uint8_t>(60'000, '[')).ok());
  CHECK(!decode(std::vector<uint8_t>(60'000, 0x91)).ok());  // an array of one in msgpack
  CHECK(!decode(bytes_of("{\"a\":" + std::string(30'000, '[') + std::string(30'000, ']') + "}"))
             .ok());
  CHECK(!decode(with("agreed", std::string(100'000, 'x'))).ok());
}

TEST_CASE("cards that agree are accepted") {
  CHECK(check_agreement({card(0)}).ok());
  CHECK(check_agreement({card(0), card(1), card(2)}).ok());
}

TEST_CASE("what differs is named, with both values and ranks") {
  std::vector<Card> cards = {card(0), card(1), card(2)};
  cards[2].agreed = "HETCCL_DEPTH=3\nHETCCL_SLICE_BYTES=4096\n";
  const auto setting = check_agreement(cards);
  CHECK(setting.code() == ErrorCode::InvalidUsage);
  for (const char* part : {"HETCCL_SLICE_BYTES=0", "HETCCL_SLICE_BYTES=4096", "rank 0", "rank 2"}) {
    CAPTURE(part);
    CHECK(setting.message().find(part) != std::string::npos);
  }

  cards[2] = card(2);
  cards[1].version = 10'203;
  const auto version = check_agreement(cards);
  CHECK(version.code() == ErrorCode::InvalidUsage);
  for (const char* part : {"0.1.0", "1.2.3", "rank 0", "rank 1"}) {
    CAPTURE(part);
    CHECK(version.message().find(part) != std::string::npos);
  }
}

TEST_CASE("a setting that only one side has is a difference") {
  std::vector<Card> cards = {card(0), card(1)};
  cards[1].agreed = "HETCCL_DEPTH=3\n";
  CHECK(check_agreement(cards).message().find("HETCCL_SLICE_BYTES") != std::string::npos);
  std::swap(cards[0].agreed, cards[1].agreed);
  CHECK(check_agreement(cards).message().find("HETCCL_SLICE_BYTES") != std::string::npos);
}
