#include "tune/library_space.h"

#include <doctest/doctest.h>

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
  CHECK(space[3].axes.empty());  // the library chooses its channels
  CHECK(library_space(Collective::AllGather, 1024, usual(), true).size() == 3);
  CHECK(library_space(Collective::AllGather, uint64_t{5} << 20U, usual(), true).size() == 2);
}

TEST_CASE("library space: sums keep their order, and some calls cannot be told") {
  CHECK(library_space(Collective::AllReduce, 1024, usual(), true).size() == 1);
  CHECK(library_space(Collective::AllToAll, 1024, usual(), false).empty());
  CHECK(library_space(Collective::AllReduce, 1024, {}, false).empty());
}

TEST_CASE("library space: what the library cannot do is refused, and why") {
  const auto refused = [](const Tactic& tactic, const char* why, bool alone = true,
                          Collective collective = Collective::AllReduce) {
    const Status status = check(tactic, collective, alone, usual());
    CHECK(status.code() == ErrorCode::InvalidArgument);
    CHECK_MESSAGE(status.message().find(why) != std::string::npos, status.message());
  };
  const auto pair = [](int algorithm, int protocol, uint16_t channels = 0) {
    return Tactic{static_cast<uint8_t>(algorithm + 1), static_cast<uint8_t>(protocol + 1),
                  channels};
  };
  CHECK(check({}, Collective::AllReduce, false, {}).ok());
  CHECK(check({.channels = 4}, Collective::AllReduce, false, usual()).ok());
  CHECK(check(pair(kRing, kSimple, 4), Collective::AllReduce, true, usual()).ok());
  CHECK(check({.channels = 4}, Collective::AllReduce, true, {}).message().find("HETCCL_TUNE") !=
        std::string::npos);
  refused({.algorithm = 1}, "go together");
  refused({.protocol = 1}, "go together");
  refused(pair(kPat, kSimple), "cannot run");
  refused(pair(kTree, kSimple), "cannot run", true, Collective::AllGather);
  refused(pair(kRing, kSimple), "one cluster", false);
  refused(pair(kNvls, kSimple, 4), "nccl_channels");
}

}  // namespace
}  // namespace hetccl::tune
