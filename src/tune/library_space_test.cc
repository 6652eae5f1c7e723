#include "tune/library_space.h"

#include <doctest/doctest.h>

#include "tune/welcome.h"

namespace hetccl::tune {
namespace {

using enum Tactic::Algorithm;
using enum Tactic::Protocol;

Tactics usual() {
  Tactics tactics;
  for (const int protocol : {kLl, kSimple}) {
    tactics.add(LibraryCall::AllReduce, kTree, protocol);
    tactics.add(LibraryCall::AllReduce, kRing, protocol);
    tactics.add(LibraryCall::AllGather, kRing, protocol);
  }
  tactics.add(LibraryCall::AllReduce, kNvls, kSimple);
  return tactics;
}

TEST_CASE("library space: the library's choice, then each pair that it has, with channels") {
  const Space space = library_space(Collective::AllReduce, uint64_t{1} << 20U, usual(), false);
  REQUIRE(space.size() == 6);
  CHECK(space[0].start == vendor_setting({}));
  CHECK(space[0].axes.empty());
  CHECK(space[1].start == vendor_setting({.tactic = {kRing + 1, kSimple + 1, 4}}));
  CHECK(space[1].axes.size() == 1);
  CHECK(space[3].start == vendor_setting({.tactic = {kNvls + 1, kSimple + 1, 0}}));
  CHECK(space[3].axes.empty());  // its channels are the library's
  CHECK(library_space(Collective::AllGather, 1024, usual(), true).size() == 3);
  CHECK(library_space(Collective::AllGather, uint64_t{5} << 20U, usual(), true).size() == 2);
}

TEST_CASE("library space: sums keep their order, and some calls cannot be told") {
  CHECK(library_space(Collective::AllReduce, 1024, usual(), true).size() == 1);
  CHECK(library_space(Collective::AllToAll, 1024, usual(), false).empty());
  CHECK(library_space(Collective::AllReduce, 1024, {}, false).empty());
}

TEST_CASE("welcome: survives the trip, whatever a rank sends is bounded") {
  Welcome mine;
  mine.tactics = usual();
  CHECK(welcome_from_json(to_json(mine)).tactics == usual());
  CHECK_FALSE(welcome_from_json(to_json(Welcome{})).tactics.has_value());
  for (const char* text : {R"({"tactics": [1, 2]})", R"({"tactics": [1, 2, 3, 4, -5]})",
                           R"({"tactics": [1, 2, 3, 4, 1e300], "learnt": 3})"}) {
    const Json json = Json::parse(text, "it", 1000).value();
    CHECK(welcome_from_json(json).tactics == Tactics{});
  }
}

TEST_CASE("welcome: all libraries that can be told must take it") {
  Tactics rings;
  rings.add(LibraryCall::AllReduce, kRing, kSimple);
  const Welcome able{usual(), {}}, less{rings, {}}, unable{Tactics{}, {}}, other{};
  CHECK(common_tactics({}).empty());
  CHECK(common_tactics(std::vector{other, other}).empty());
  CHECK(common_tactics(std::vector{able, other, able}) == usual());
  CHECK(common_tactics(std::vector{able, less}) == rings);
  CHECK(common_tactics(std::vector{able, unable}).empty());
}

}  // namespace
}  // namespace hetccl::tune
