// Fuzzes messages between the ends of an RDMA channel: ports, queue pairs, frames and grants.
#include "fuzz/fuzz.h"
#include "transport/verbs/fabric.h"
#include "transport/verbs/frame.h"
#include "transport/verbs/queue_pair.h"

namespace hetccl {

using namespace transport::verbs;

std::vector<fuzz::Bytes> fuzz::seeds() {
  Bytes frame(kFrameBytes + kGrantBytes), pair(kQpAddressBytes);
  encode(Frame{FrameKind::Grant, 3}, frame.data());
  encode(Grant{1, 0, kChunkBytes, 4096, 7, 2}, frame.data() + kFrameBytes);
  encode(QpAddress{17, 5, 1, 3, {}}, pair.data());
  const Offer roce{abi::kLinkEthernet, abi::kGidRoceV2, 24, 100'000, {}};
  return {frame, pair, encode(Endpoint{{roce, roce}, {'T', 1, 1}})};
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  const auto frame = decode_frame(data, size);
  if (frame.ok()) {
    fuzz::require(frame.value().credits <= kCredits, "credits are bounded");
    uint8_t again[kFrameBytes];
    encode(frame.value(), again);
    fuzz::require(std::equal(again, again + kFrameBytes, data), "a frame is what was read");
    if (frame.value().kind == FrameKind::Grant) {
      uint8_t grant[kGrantBytes];
      encode(decode_grant(data + kFrameBytes), grant);
      fuzz::require(std::equal(grant, grant + kGrantBytes, data + kFrameBytes),
                    "a grant is what was read");
    }
  }
  if (size >= kQpAddressBytes) {
    const auto pair = decode_qp(data);
    if (pair.ok()) fuzz::require(pair.value().mtu >= 1 && pair.value().mtu <= 5, "an MTU is one");
  }
  const auto endpoint = decode(transport::Address(data, data + size));
  if (endpoint.ok()) {
    const auto& offers = endpoint.value().offers;
    fuzz::require(offers.size() <= kMaxOffers, "ports are bounded");
    fuzz::require(encode(endpoint.value()) == transport::Address(data, data + size),
                  "an address is what was read");
    Ends ends{3, 4, offers, offers, Reach::Named, kMostQueues};
    Greeting greeting{};
    std::copy_n(data, std::min(size, greeting.size()), greeting.begin());
    const bool greeted = take_greeting(greeting, ends).ok();
    const Ends there{4, 3, ends.theirs, ends.own, ends.least, ends.queues};
    fuzz::require(!greeted || greet(there) == greeting, "a greeting is what was read");
    const auto pair = choose_pair(ends);
    fuzz::require(!pair || (pair->first < offers.size() && pair->second < offers.size()),
                  "a pair is of ports that there are");
  }
  return 0;
}
