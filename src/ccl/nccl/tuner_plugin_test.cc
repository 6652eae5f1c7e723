// Tests the answers to NCCL when it asks how to run a call.
#include "ccl/nccl/tuner_plugin.h"

#include <doctest/doctest.h>

#include <array>

#include "fake/thread.h"

namespace hetccl::ccl::nccl {
namespace {

using enum Tactic::Algorithm;
using enum Tactic::Protocol;

constexpr int kAllReduce = nccl_tuner::kAllReduce;

// Tree and ring with all protocols, NVLS with simple; NCCL would choose tree with ll128.
struct Asked {
  std::array<float, 21> costs{3, 2, 9, 5, 4, 2.5F, -1, -1, -1, -1, -1, -1, -1, -1, 6};
  int channels = 0;

  Asked() { std::fill(costs.begin() + 15, costs.end(), -1.F); }
  int ask(int function = kAllReduce) {
    return tuner::choose_v4(nullptr, function, 1024, 1, reinterpret_cast<float**>(costs.data()),
                            Tactic::kAlgorithms, Tactic::kProtocols, 0, &channels);
  }
  [[nodiscard]] bool untouched() const { return costs == Asked().costs && channels == 0; }
};

Tactic tactic(int algorithm, int protocol, uint16_t channels = 0) {
  return {static_cast<uint8_t>(algorithm + 1), static_cast<uint8_t>(protocol + 1), channels};
}

TEST_CASE("tuner plug-in: a pair becomes the cheapest, with its channels") {
  Tactics possible;
  const ScopedTactic scope(tactic(kRing, kLl, 4), possible);
  Asked asked;
  CHECK(asked.ask() == nccl_tuner::kSuccess);
  CHECK(asked.costs[3] == 0);
  CHECK(asked.channels == 4);
}

TEST_CASE("tuner plug-in: what NCCL cannot do is left to it, on all ranks alike") {
  Tactics possible;
  for (const Tactic& wanted : {tactic(kNvls, kLl, 4), tactic(kPat, kSimple), Tactic{99, 99, 4}}) {
    const ScopedTactic scope(wanted, possible);
    Asked asked;
    asked.ask();
    CHECK(asked.untouched());
  }
}

TEST_CASE("tuner plug-in: channels alone, where NCCL limits them") {
  Tactics possible;
  const ScopedTactic scope(Tactic{0, 0, 8}, possible);
  Asked asked;
  asked.ask();
  CHECK(asked.channels == 8);
  CHECK(asked.costs == Asked().costs);
  Asked nvls;
  nvls.costs[14] = 1;  // NCCL would choose it, and sets no limit for it
  nvls.ask();
  CHECK(nvls.channels == 0);
}

TEST_CASE(
    "tuner plug-in: other communicators' calls, other threads' and other functions are left "
    "alone") {
  Asked asked;
  asked.ask();
  CHECK(asked.untouched());
  Tactics possible;
  {
    const ScopedTactic scope(tactic(kRing, kLl, 4), possible);
    fake::Thread([&] { asked.ask(); }).join();
    CHECK(asked.untouched());
    asked.ask(5);
    asked.ask(-1);
    CHECK(asked.untouched());
    CHECK(possible.empty());
  }
  asked.ask();
  CHECK(asked.untouched());
}

TEST_CASE("tuner plug-in: what a library offers is noted, by call") {
  Tactics possible;
  const ScopedTactic scope({}, possible);
  Asked asked;
  asked.ask();
  CHECK(asked.untouched());
  CHECK(possible.has(LibraryCall::AllReduce, kTree, kLl));
  CHECK(possible.has(LibraryCall::AllReduce, kNvls, kSimple));
  CHECK_FALSE(possible.has(LibraryCall::AllReduce, kNvls, kLl));
  CHECK_FALSE(possible.has(LibraryCall::AllGather, kTree, kLl));
  CHECK_FALSE(possible.has(LibraryCall::AllReduce, 7, 0));
  Tactics other;
  other.add(LibraryCall::AllReduce, kTree, kLl);
  other.add(LibraryCall::Reduce, kTree, kLl);
  possible &= other;
  CHECK(possible.has(LibraryCall::AllReduce, kTree, kLl));
  CHECK_FALSE(possible.has(LibraryCall::AllReduce, kRing, kLl));
  CHECK_FALSE(possible.has(LibraryCall::Reduce, kTree, kLl));
}

TEST_CASE("tuner plug-in: a table of another shape") {
  Tactics possible;
  const ScopedTactic scope(tactic(kRing, kSimple, 2), possible);
  std::array<float, 8> wide{1, -1, -1, 1, -1, -1, 3, 2};  // two algorithms, four protocols
  int channels = 0;
  tuner::choose_v3(nullptr, kAllReduce, 64, 1, reinterpret_cast<float**>(wide.data()), 2, 4,
                   &channels);
  CHECK(wide[6] == 0);
  CHECK(channels == 2);
  tuner::choose_v3(nullptr, kAllReduce, 64, 1, nullptr, 2, 4, &channels);
}

}  // namespace
}  // namespace hetccl::ccl::nccl
