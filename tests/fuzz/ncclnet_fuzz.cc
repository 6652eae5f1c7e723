// Fuzzes messages between the ends of a channel by a net plug-in: addresses, frames and greetings.
#include "fuzz/fuzz.h"
#include "transport/ncclnet/fabric.h"
#include "transport/ncclnet/frame.h"

namespace hetccl {

using namespace transport::ncclnet;
using transport::Header;
using transport::kHeaderBytes;

std::vector<fuzz::Bytes> fuzz::seeds() {
  Bytes message(kFrameBytes + kHeaderBytes), greeting(kFrameBytes + kHelloBytes);
  encode(Frame{FrameKind::Long, 3, kMostChunk}, message.data());
  transport::encode(Header{1, 0, 1 << 20, 1 << 20, {}}, message.data() + kFrameBytes);
  encode(Frame{FrameKind::Listen, 1, 0}, greeting.data());
  Hello hello;
  hello.chunk_bytes = kMostChunk;
  encode(hello, greeting.data() + kFrameBytes);
  return {message, greeting, encode(Endpoint{"IBext_v10", 2, {'T', 1, 1}})};
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  const auto endpoint = decode(transport::Address(data, data + size));
  if (endpoint.ok()) {
    fuzz::require(endpoint.value().devices >= 1, "there is a device to choose");
    fuzz::require(encode(endpoint.value()) == transport::Address(data, data + size),
                  "an address is what was read");
  }
  if (size < kFrameBytes) return 0;
  const auto frame = decode_frame(data);
  if (!frame.ok()) return 0;
  fuzz::require(frame.value().credits <= kCredits, "credits are bounded");
  uint8_t again[kFrameBytes];
  encode(frame.value(), again);
  fuzz::require(std::equal(again, again + kFrameBytes, data), "a frame is what was read");
  if (size >= kFrameBytes + kHeaderBytes) {
    const auto header = decode_header(frame.value(), data + kFrameBytes);
    const bool whole = frame.value().kind == FrameKind::Whole;
    if (header.ok())
      fuzz::require((whole ? header.value().total <= kMostWhole : header.value().total > 0) &&
                        (whole || frame.value().value >= kLeastChunk),
                    "a slot has room for a short message, and a long one has chunks");
  }
  if (size >= kFrameBytes + kHelloBytes) {
    const auto hello = decode_hello(data + kFrameBytes);
    if (hello.ok())
      fuzz::require(
          hello.value().chunk_bytes >= kLeastChunk && hello.value().chunk_bytes <= kMostChunk,
          "chunks are bounded");
  }
  return 0;
}
