// Headers of messages between ranks, the check against what was posted, and tcp's addresses.
#include "fuzz/fuzz.h"
#include "transport/message.h"
#include "transport/tcp/address.h"

namespace hetccl {

using namespace transport;

namespace {

constexpr MessageInfo kPosted = {
    77, 5, 1, 2, {Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, 100}};

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  std::vector<Bytes> seeds;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{100}, uint64_t{1} << 40}) {
    Bytes seed(kHeaderBytes);
    encode(Header{1, 0, bytes, bytes, kPosted}, seed.data());
    seeds.push_back(seed);
  }
  tcp::Endpoint endpoint;
  endpoint.streams = 4;
  endpoint.addresses.resize(2);
  endpoint.addresses[0].storage.ss_family = AF_INET;
  endpoint.addresses[1].storage.ss_family = AF_INET6;
  endpoint.cards = {{"eth0", 24, 25'000}, {"eth1", 64, 0}};
  seeds.push_back(tcp::encode(endpoint));
  return seeds;
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  if (size >= kHeaderBytes) {
    const auto header = decode(data);
    if (header.ok()) {
      const Header& read = header.value();
      fuzz::require(read.offset <= read.total && read.bytes <= read.total - read.offset,
                    "a piece lies in its message");
      uint8_t again[kHeaderBytes];
      encode(read, again);
      fuzz::require(std::equal(again, again + kHeaderBytes, data), "a header is what was read");
      const Status agreed = check(read, {nullptr, 100, kPosted}, 3);
      fuzz::require(agreed.ok() || agreed.message().size() < 2000, "a difference is explained");
    }
  }
  const auto endpoint = tcp::decode(Address(data, data + size));
  if (endpoint.ok()) {
    fuzz::require(endpoint.value().streams >= 1 && endpoint.value().streams <= tcp::kMaxStreams,
                  "streams are bounded");
    const auto again = tcp::decode(tcp::encode(endpoint.value()));
    fuzz::require(again.ok() && tcp::encode(again.value()) == tcp::encode(endpoint.value()),
                  "an address survives the trip");
  }
  return 0;
}
