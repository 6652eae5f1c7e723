#include "base/json.h"

#include <doctest/doctest.h>

#include <limits>
#include <random>

namespace hetccl {
namespace {

constexpr size_t kAny = size_t{1} << 20U;

Json read(std::string_view text) {
  const Result<Json> json = Json::parse(text, "a text", kAny);
  REQUIRE_MESSAGE(json.ok(), text, ": ", json.status().message());
  return json.value();
}

bool refused(std::string_view text) {
  return !Json::parse(text, "a text", kAny).ok();
}

Json sample() {
  return {{"name", "eth0"},
          {"rank", 3},
          {"offset", -4},
          {"share", 0.25},
          {"up", true},
          {"label", nullptr},
          {"ranks", std::vector<int>{0, 2}},
          {"none", std::vector<Json>()},
          {"empty", std::vector<Json::Member>()},
          {"nics", std::vector<Json>{Json{{"mbps", 25'000U}}, Json{{"down", false}}}}};
}

std::string nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST_CASE("values are written in the order in which they came, and read back") {
  const std::string line =
      R"({"name":"eth0","rank":3,"offset":-4,"share":0.25,"up":true,"label":null,"ranks":[0,2],)"
      R"("none":[],"empty":{},"nics":[{"mbps":25000},{"down":false}]})";
  CHECK(sample().dump() == line);
  CHECK(read(line) == sample());
  CHECK(read(line).dump() == line);
  CHECK(read(sample().dump(2)) == sample());
  const Json small = {{"a", std::vector{1, 2}}, {"b", std::vector<int>()}, {"c", Json{{"d", "e"}}}};
  CHECK(small.dump(1) ==
        "{\n \"a\": [\n  1,\n  2\n ],\n \"b\": [],\n \"c\": {\n  \"d\": \"e\"\n }\n}");
  CHECK(small.dump(0) == "{\n\"a\": [\n1,\n2\n],\n\"b\": [],\n\"c\": {\n\"d\": \"e\"\n}\n}");
}

TEST_CASE("a value gives what it is, and nothing else") {
  const Json json = sample();
  CHECK(json.size() == 10);
  REQUIRE(json["name"].text() != nullptr);
  CHECK(*json["name"].text() == "eth0");
  CHECK(json["rank"].integer(3, 3) == 3);
  CHECK(json["offset"].integer(-4, 0) == -4);
  CHECK_FALSE(json["rank"].integer(4, 9));
  CHECK_FALSE(json["rank"].integer(0, 2));
  CHECK_FALSE(json["share"].integer(0, 9));
  CHECK(json["share"].number() == 0.25);
  CHECK(json["offset"].number() == -4);
  CHECK(json["ranks"][1] == 2);
  CHECK(json["ranks"].size() == 2);
  REQUIRE(json["none"].elements() != nullptr);
  REQUIRE(json["empty"].members() != nullptr);
  CHECK(json["nics"][0]["mbps"] == 25'000);
  CHECK(json.find("label") != nullptr);

  for (const auto& [name, value] : *json.members()) {
    CAPTURE(name);
    CHECK((value.text() != nullptr) == (name == "name"));
    CHECK(value.integer(-9, 9).has_value() == (name == "rank" || name == "offset"));
    CHECK(value.is_null() == (name == "label"));
    CHECK((value.members() != nullptr) == (name == "empty"));
    CHECK((value.elements() != nullptr) == (name == "none" || name == "ranks" || name == "nics"));
    CHECK(value.find("name") == nullptr);
    CHECK(value["name"]["name"][7].is_null());
  }
  CHECK(json.find("nobody") == nullptr);
  CHECK(json[0].is_null());
  CHECK(json["ranks"][2].is_null());
}

TEST_CASE("members are added and changed") {
  Json json;
  json.set("a", 1);
  json.set("b", "two");
  json.set("a", std::vector{3});
  CHECK(json.dump() == R"({"a":[3],"b":"two"})");
  const Json copy = json;
  json.set("b", copy);
  CHECK(json.dump() == R"({"a":[3],"b":{"a":[3],"b":"two"}})");
  CHECK_FALSE(json == copy);
  json = json["b"];
  CHECK(json == copy);
}

TEST_CASE("every byte of a text survives") {
  std::string bytes;
  for (char c = 0x7f; c > 0; --c) bytes += c;
  bytes += '\0';
  const std::string text = bytes + "é漢𝄞" + bytes;
  const Json json = {{text, text}};
  CHECK(read(json.dump()) == json);
  CHECK(Json("\"\\\b\f\n\r\t\x01/\x7f").dump() == R"("\"\\\b\f\n\r\t\u0001/)"
                                                  "\x7f\"");
  CHECK(Json("é").dump() == "\"é\"");
  CHECK(read(R"("\u00e9\ud834\udd1e\/\u0041")") == "é𝄞/A");
}

TEST_CASE("what is no UTF-8 is replaced when written and refused when read") {
  CHECK(Json("a\xff\xfe").dump() == "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
  CHECK(Json("\xc3(").dump() == "\"\xef\xbf\xbd(\"");
  for (const char* bytes : {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80"}) {
    const Json json = {{bytes, bytes}};
    CHECK(read(json.dump()).size() == 1);
    CHECK(refused("\"" + std::string(bytes) + "\""));
  }
  CHECK(refused(R"("\ud834")"));
  CHECK(refused(R"("\udd1e\ud834")"));
  CHECK(refused("\"a\nb\""));
}

TEST_CASE("integers keep 64 bits; greater ones are no integers") {
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  constexpr auto kLeast = std::numeric_limits<int64_t>::min();
  CHECK(read("9223372036854775807").integer(0, kMost) == kMost);
  CHECK(read("-9223372036854775808").integer(kLeast, 0) == kLeast);
  CHECK_FALSE(read("9223372036854775808").integer(kLeast, kMost));
  CHECK(read("18446744073709551615") == UINT64_MAX);
  CHECK(Json(UINT64_MAX).dump() == "18446744073709551615");
  CHECK(Json(kLeast).dump() == "-9223372036854775808");
  CHECK(Json(int64_t{5}) == Json(5U));
  CHECK_FALSE(Json(-1) == Json(UINT64_MAX));
  for (const char* text : {"18446744073709551616", "-9223372036854775809", "1.0", "1e3"}) {
    CHECK_FALSE(read(text).integer(kLeast, kMost));
    CHECK(read(text).number() == std::stod(text));
  }
}

TEST_CASE("other numbers are written as shortly as they can be read back") {
  CHECK(Json(0.1).dump() == "0.1");
  CHECK(Json(2.0).dump() == "2.0");
  CHECK(Json(1e300).dump() == "1e+300");
  CHECK(Json(1'763'780'000'123'456.5).dump() == "1.7637800001234565e+15");
  CHECK(Json(std::numeric_limits<double>::infinity()).dump() == "null");
  CHECK(Json(std::numeric_limits<double>::quiet_NaN()).dump() == "null");
  CHECK(refused("1e400"));
  std::mt19937_64 random(5);
  for (int i = 0; i < 1000; ++i) {
    const double value =
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200));
    CHECK(read(Json(value).dump()).number() == value);
  }
}

TEST_CASE("of members with one name the last counts") {
  const Json json = read(R"({"b":0,"a":1,"b":{"a":2,"a":3},"c":4,"a":5})");
  CHECK(json == Json{{"b", Json{{"a", 3}}}, {"c", 4}, {"a", 5}});
  std::string many = "{";  // quick, unlike comparing each pair
  for (int i = 0; i < 60'000; ++i) many += format("\"%d\":%d,", i % 50'000, i);
  const Json read_back = read(many + "\"x\":0}");
  CHECK(read_back.size() == 50'001);
  CHECK(read_back["0"] == 50'000);
  CHECK(read_back["49999"] == 49'999);
}

TEST_CASE("nesting is bounded") {
  CHECK(read(nested(Json::kMaxDepth)).size() == 1);
  const Result<Json> deep = Json::parse(nested(Json::kMaxDepth + 1), "a text", kAny);
  CHECK(deep.status().message() == "a text is nested more than 64 deep");
  CHECK(refused(std::string(kAny, '[')));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"\":";
  CHECK(refused(objects));
  CHECK(refused("[" + nested(Json::kMaxDepth) + "]"));
  CHECK(read("[" + nested(Json::kMaxDepth - 1) + "," + nested(Json::kMaxDepth - 1) + "]").size() ==
        2);
}

TEST_CASE("size is bounded, and what is wrong is said of what") {
  const Result<Json> long_text = Json::parse("[1]", "a card", 2);
  CHECK(long_text.status().code() == ErrorCode::InvalidArgument);
  CHECK(long_text.status().message() == "a card of 3 bytes: at most 2 are allowed");
  CHECK(Json::parse("[1]", "a card", 3).ok());
  CHECK(Json::parse("[1", "a card", 3).status().message() == "a card is not JSON, from line 1 on");
  CHECK(Json::parse("[1,\n2,\n}", "a card", 9).status().message() ==
        "a card is not JSON, from line 3 on");
}

TEST_CASE("what is cut off or no JSON is refused") {
  for (const int indent : {-1, 1}) {
    const std::string whole = sample().dump(indent);
    for (size_t size = 0; size < whole.size(); ++size) {
      CHECK(refused(std::string_view(whole).substr(0, size)));
    }
  }
  for (const char* text : {"", " ", "nul", "{]", "[1,]", "{\"a\":}", "{\"a\":1,}", "{1:2}", "01",
                           "+1", ".5", "1.", "NaN", "'a'", "[1] 2", "// a\n1", "\"a"}) {
    CAPTURE(text);
    CHECK(refused(text));
  }
  CHECK(refused(std::string_view("1\0 2", 4)));
  CHECK(refused(std::string_view("\0", 1)));
  CHECK(read(" \t\r\n[ 1 , 2 ] ").size() == 2);
}

TEST_CASE("bytes that were changed are read or refused, never a crash") {
  std::mt19937 random(7);
  const std::string whole = sample().dump();
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = whole;
    for (int i = 0; i < 1 + round % 4; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const Result<Json> got = Json::parse(bytes, "a text", kAny);
    if (got.ok()) CHECK(read(got.value().dump()) == got.value());
  }
}

}  // namespace
}  // namespace hetccl
