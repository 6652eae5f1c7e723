#include "tune/ledger.h"

#include <doctest/doctest.h>

namespace hetccl::tune {
namespace {

const Key kLedgerKey{Collective::AllReduce, 22, 4, -1};
const Key kOther{Collective::AllGather, 22, 0, -1};
const Setting kStanding{"exchange", {.slice_bytes = 65'536, .depth = 4}, {}};
const Setting kCandidate{"ring", {.slice_bytes = 65'536, .depth = 4}, {}};

// A ledger that knows kStanding, and tries kCandidate from call 0 on.
Ledger trying(uint32_t calls, uint32_t phase) {
  Ledger ledger;
  ledger.add_known(kLedgerKey, kStanding);
  CHECK(ledger.vote({1, 0, {{kLedgerKey, kCandidate, calls, phase}}}).yes);
  ledger.settle({1, true});
  return ledger;
}

TEST_CASE("ledger: a trial alternates from pair to pair, and ends after its last call") {
  for (const uint32_t phase : {1U, 3U, 16U}) {
    CAPTURE(phase);
    const uint32_t calls = 4 * phase;
    Ledger ledger = trying(calls, phase);
    for (uint32_t call = 0; call < calls; ++call) {
      const auto use = ledger.use(kLedgerKey, call);
      REQUIRE(use);
      REQUIRE(use->trial);
      CHECK(use->trial->call == call);
      CHECK(use->trial->calls == calls);
      CHECK(use->trial->phase == call / phase);
      CHECK(use->trial->phases == 4);
      CHECK(use->trial->ends_phase == ((call + 1) % phase == 0));
      const bool candidate = tries_candidate(call / phase);
      CHECK(use->setting == (candidate ? kCandidate : kStanding));
      CHECK(use->round == (candidate ? 1 : 0));
    }
    const auto after = ledger.use(kLedgerKey, calls);
    CHECK_FALSE(after->trial);
    CHECK(after->setting == kStanding);
  }
}

TEST_CASE("ledger: after each two phases calls may rest, which are in no phase") {
  Ledger ledger;
  ledger.add_known(kLedgerKey, kStanding);
  CHECK(ledger.vote({1, 0, {{kLedgerKey, kCandidate, 12, 2, true}}}).yes);
  ledger.settle({1, true});
  // s: standing setting, c: candidate; capitals end a phase.
  const std::string_view expected = "sScC.cCsS..sScC...";
  for (size_t call = 0; call < expected.size(); ++call) {
    CAPTURE(call);
    const char what = expected[call];
    const auto use = ledger.use(kLedgerKey, call);
    CHECK(use->setting == (what == 'c' || what == 'C' ? kCandidate : kStanding));
    REQUIRE(use->trial.has_value() == (what != '.'));
    if (use->trial) CHECK(use->trial->ends_phase == (what == 'S' || what == 'C'));
  }
}

TEST_CASE("ledger: other keys' calls and steady calls are in no phase") {
  Ledger ledger = trying(4, 2);
  uint64_t sequence = 0;
  for (uint32_t call = 0; call < 4; ++call) {
    CHECK_FALSE(ledger.use(kOther, sequence++)->trial);
    const auto steady = ledger.use(kLedgerKey, sequence++, true);
    CHECK_FALSE(steady->trial);
    CHECK(steady->setting == kStanding);
    CHECK(ledger.use(kLedgerKey, sequence++)->trial->phase == call / 2);
  }
}

}  // namespace
}  // namespace hetccl::tune
