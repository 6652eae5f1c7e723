#include "tune/tactics_json.h"

#include <doctest/doctest.h>

#include <vector>

namespace hetccl::tune {
namespace {

using Told = std::vector<std::optional<Tactics>>;

Tactics with(int algorithm, int protocol, uint64_t costs = 0) {
  Tactics tactics;
  tactics.add(LibraryCall::AllReduce, algorithm, protocol);
  tactics.add_costs(costs);
  return tactics;
}

TEST_CASE("tactics survive the trip; whatever a rank sends is bounded") {
  const Tactics ring = with(Tactic::kRing, Tactic::kSimple, 7);
  CHECK(tactics_from_json(to_json(ring)) == ring);
  CHECK_FALSE(tactics_from_json(to_json(std::nullopt)).has_value());
  for (const char* text :
       {"3", R"({"pairs": [1, 2]})", R"({"pairs": [1, 2, 3, 4, -5], "costs": "0"})",
        R"({"pairs": [1, 2, 3, 4, 1e300], "costs": "0"})", R"({"pairs": [1, 2, 3, 4, 5]})",
        R"({"pairs": [1, 2, 3, 4, 5], "costs": "fffffffffffffffff"})",
        R"({"pairs": [1, 2, 3, 4, 5], "costs": 3})"}) {
    CHECK(tactics_from_json(Json::parse(text, "it", 1000).value()) == Tactics());
  }
}

TEST_CASE("all libraries that can be told must take what is asked for") {
  Tactics both = with(Tactic::kRing, Tactic::kSimple);
  both.add(LibraryCall::AllReduce, Tactic::kTree, Tactic::kLl);
  const Tactics ring = with(Tactic::kRing, Tactic::kSimple);
  CHECK(common_tactics({}).empty());
  CHECK(common_tactics(Told{std::nullopt, std::nullopt}).empty());
  CHECK(common_tactics(Told{both, std::nullopt, both}).bits() == both.bits());
  CHECK(common_tactics(Told{both, ring}).bits() == ring.bits());
  CHECK(common_tactics(Told{both, Tactics()}).empty());
}

TEST_CASE("what libraries expect calls to cost tells jobs apart") {
  const auto costs = [](const Told& told) { return common_tactics(told).costs(); };
  const Tactics fast = with(Tactic::kRing, Tactic::kSimple, 10),
                slow = with(Tactic::kRing, Tactic::kSimple, 11);
  CHECK(costs({fast, fast}) == costs({fast, fast}));
  CHECK(costs({fast, fast}) != costs({slow, slow}));
  CHECK(costs({fast, slow}) != costs({fast, fast}));
}

}  // namespace
}  // namespace hetccl::tune
