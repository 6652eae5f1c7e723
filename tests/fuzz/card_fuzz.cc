// Fuzzes the record that a rank sends to all others when a communicator is made.
#include "comm/card.h"
#include "fake/cases.h"
#include "fuzz/fuzz.h"

namespace hetccl {

using namespace comm;

std::vector<fuzz::Bytes> fuzz::seeds() {
  Card card;
  card.version = 100;
  card.agreed = "HETCCL_DEPTH=3\nHETCCL_SLICE_BYTES=0\n";
  card.info = fake::infos_of({"A"})[0];
  card.info.nics = {{"eth0", "10.0.0.1", 100'000, 2}};
  std::vector<Bytes> seeds = {encode(card)};
  card.info.library_reduces =
      ReductionSet::where([](DataType, RedOp op) { return !is_bitwise(op); });
  card.info.library_sends = false;
  card.info.library_exchanges = false;
  card.addresses["tcp"] = {0, 1, 127, 128, 255};
  card.addresses["shm"] = {};
  seeds.push_back(encode(card));
  return seeds;
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  const auto card = decode(std::vector<uint8_t>(data, data + size));
  if (!card.ok()) {
    fuzz::require(!card.status().message().empty(), "a refusal says why");
    return 0;
  }
  const auto again = decode(encode(card.value()));
  fuzz::require(again.ok(), "a card survives the trip");
  fuzz::require(again.value().agreed == card.value().agreed &&
                    again.value().info == card.value().info &&
                    again.value().addresses == card.value().addresses,
                "a card is what was read");
  (void)check_agreement({card.value(), again.value()});
  return 0;
}
