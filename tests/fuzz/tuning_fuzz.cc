// Fuzzes notes about tuning between ranks, the file of tuning results, and a ledger that believes
// every note.
#include "fuzz/fuzz.h"
#include "tune/knowledge.h"
#include "tune/ledger.h"
#include "tune/note.h"

namespace hetccl {

namespace {

const tune::Key kKey{Collective::AllReduce, 20, 4, -1};
const tune::Setting kSetting{"exchange", {.slice_bytes = 65'536, .depth = 3}, {.tcp_streams = 2}};

fuzz::Bytes bytes_of_note(const tune::Note& note) {
  return tune::encode(note);
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  tune::Knowledge knowledge;
  knowledge.add({"0123456789abcdef", "here"}, {{kKey, kSetting, 1 << 20, 100, 200, 9}}, 1);
  return {bytes_of(knowledge.dump()),
          bytes_of_note(tune::Proposal{7, 12, {{kKey, kSetting, 12, 2}, {kKey, kSetting, 0}}}),
          bytes_of_note(tune::Vote{7, true}),
          bytes_of_note(tune::Verdict{7, true}),
          bytes_of_note(tune::Doubt{7}),
          bytes_of_note(tune::Samples{7, 0, {1, 2, 3}})};
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto knowledge = tune::Knowledge::parse(text);
  if (knowledge.ok()) {
    const auto again = tune::Knowledge::parse(knowledge.value().dump());
    fuzz::require(again.ok() && again.value().size() == knowledge.value().size(),
                  "what was learnt survives the trip");
  }
  const auto note = tune::decode({data, size});
  if (!note) return 0;
  fuzz::require(tune::decode(tune::encode(*note)).has_value(), "a note survives the trip");
  tune::Ledger ledger;
  if (const auto* proposal = std::get_if<tune::Proposal>(&*note)) {
    const tune::Vote vote = ledger.vote(*proposal);
    ledger.settle({vote.round, true});
    for (uint64_t call = 0; call < 64; ++call) {
      const auto use = ledger.use(kKey, call);
      fuzz::require(use.has_value(), "no doubt once there is a verdict");
    }
  }
  return 0;
}
