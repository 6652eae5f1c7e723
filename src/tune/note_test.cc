#include "tune/note.h"

#include <doctest/doctest.h>

#include <random>

namespace hetccl::tune {
namespace {

const Key kNoteKey{Collective::AllReduce, 22, 4, -1};
const Setting kSetting{"exchange", {.slice_bytes = 65'536, .depth = 4}, {.tcp_streams = 2}};

TEST_CASE("notes: what is told is heard") {
  const Proposal proposal{7, 1234, {{kNoteKey, kSetting, 6}, {kNoteKey, kSetting, 0}}};
  const auto back = decode(encode(proposal));
  REQUIRE(back);
  CHECK(std::get<Proposal>(*back) == proposal);
  const Proposal phased{8, 1234, {{kNoteKey, kSetting, 4096, 64}}};
  CHECK(std::get<Proposal>(*decode(encode(phased))) == phased);
  const Proposal rested{9, 1234, {{kNoteKey, kSetting, 24, 2, true}}};
  CHECK(std::get<Proposal>(*decode(encode(rested))) == rested);
  const auto samples = decode(encode(Samples{3, 1, {1.5, 2.5}}));
  REQUIRE(samples);
  CHECK(std::get<Samples>(*samples).us == std::vector<double>{1.5, 2.5});
  CHECK(std::get<Vote>(*decode(encode(Vote{3, true}))).yes);
  CHECK(std::get<Verdict>(*decode(encode(Verdict{3, true}))).commit);
  CHECK(std::get<Doubt>(*decode(encode(Doubt{5}))).round == 5);
}

TEST_CASE("notes: settings that no rank could run are no notes") {
  const auto with = [](auto change) {
    Proposal proposal{7, 1234, {{kNoteKey, kSetting, 6}}};
    change(proposal.changes[0]);
    return decode(encode(proposal)).has_value();
  };
  CHECK(with([](Change&) {}));
  CHECK_FALSE(with([](Change& one) { one.setting.algorithm = "nonsense"; }));
  CHECK_FALSE(with([](Change& one) { one.setting.choice.slice_bytes = 0; }));
  CHECK_FALSE(with([](Change& one) { one.setting.choice.slice_bytes = 100; }));
  CHECK_FALSE(with([](Change& one) { one.setting.choice.depth = 0; }));
  CHECK_FALSE(with([](Change& one) { one.setting.choice.depth = 1000; }));
  CHECK_FALSE(with([](Change& one) { one.calls = kMostPhases + 1; }));
  CHECK_FALSE(with([](Change& one) { one.calls = 0, one.phase = 0; }));
  CHECK_FALSE(with([](Change& one) { one.phase = 4; }));  // 6 calls are not whole phases
  CHECK_FALSE(with([](Change& one) { one.calls = one.phase = kMostCalls + 1; }));
  CHECK_FALSE(with([](Change& one) { one.calls = 4096, one.phase = 32; }));  // 128 phases
  CHECK(with([](Change& one) { one.calls = 4096, one.phase = 64; }));
  CHECK_FALSE(with([](Change& one) { one.key.element_bytes = 0; }));
  CHECK_FALSE(with([](Change& one) { one.key.root_cluster = 1; }));
}

TEST_CASE("notes: garbage is no note, and harms nothing") {
  std::mt19937 random(2);
  const auto whole = encode(Proposal{7, 1234, {{kNoteKey, kSetting, 6}}});
  for (int i = 0; i < 5000; ++i) {
    auto bytes = whole;
    for (size_t n = 1 + random() % 3; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    bytes.resize(random() % 4 == 0 ? random() % bytes.size() : bytes.size());
    static_cast<void>(decode(bytes));
  }
  CHECK_FALSE(decode({}));
}

}  // namespace
}  // namespace hetccl::tune
