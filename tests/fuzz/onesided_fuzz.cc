// Parses all that endpoints tell each other: frames, greetings, and the metadata that users carry.
#include "fuzz/fuzz.h"
#include "onesided/greeting.h"
#include "onesided/protocol.h"

namespace hetccl {

using namespace onesided;

std::vector<fuzz::Bytes> fuzz::seeds() {
  Frame put{.kind = Frame::Kind::Put, .transfer = 7, .last = true, .pieces = {{1, 2, 3}}};
  put.notifies = true;
  put.payload = {1, 2};
  const Frame done{.kind = Frame::Kind::Done, .transfer = 3, .code = ErrorCode::Aborted};
  Metadata metadata{"decode-0", {}, {{5, 100, 3, "layer 0"}}};
  metadata.door.fill(0xab);
  const std::string text = encode(metadata);
  const Greeting greeting{kProtocol, "a", "host", "name", 5, true, 7, {{"tcp", {1, 2, 3}}}};
  return {encode(put), encode(done), {text.begin(), text.end()}, encode(greeting)};
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  const Bytes bytes(data, data + size);
  if (const auto frame = decode(bytes)) {
    fuzz::require(frame->pieces.size() <= kMaxPieces, "pieces are bounded");
    for (const Piece& piece : frame->pieces)
      fuzz::require(piece.bytes > 0 && piece.bytes <= kMaxPiece, "a piece is bounded");
    fuzz::require(encode(*frame) == bytes, "a frame is what was read");
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto metadata = metadata_from(text); metadata.ok()) {
    const auto again = metadata_from(encode(metadata.value()));
    fuzz::require(again.ok() && again.value().door == metadata.value().door,
                  "metadata survive the trip");
  }
  if (const auto greeting = greeting_from(bytes); greeting.ok()) {
    const auto again = greeting_from(encode(greeting.value()));
    fuzz::require(again.ok() && again.value().addresses == greeting.value().addresses,
                  "a greeting survives the trip");
  }
  return 0;
}
