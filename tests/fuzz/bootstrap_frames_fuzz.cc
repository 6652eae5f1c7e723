// The control plane's frames, and the concatenation that an all-gather carries.
#include "bootstrap/frame.h"
#include "fuzz/fuzz.h"

namespace hetccl {

using namespace bootstrap;

namespace {

fuzz::Bytes payload_of(const bootstrap::Bytes& frame) {
  return {frame.begin() + kHeaderBytes, frame.end()};
}

bool same(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// Text, which comes last, is escaped as it is read: then it holds a backslash, and reads the same
// from then on.
template <typename Encode, typename Decode>
bool is_what_was_read(const Encode& encode_it, const Decode& decode_it, const std::string& text,
                      std::span<const uint8_t> payload) {
  const fuzz::Bytes written = payload_of(encode_it(*decode_it(payload)));
  if (text.find('\\') == std::string::npos) return same(written, payload);
  const size_t head = written.size() - text.size() - sizeof(uint32_t);
  return same(std::span(written).first(head), payload.first(head)) &&
         same(payload_of(encode_it(*decode_it(written))), written);
}

void decode_payload(std::span<const uint8_t> payload) {
  if (const auto join = decode_join(payload))
    fuzz::require(is_what_was_read([](const Join& one) { return encode(one); }, decode_join,
                                   join->description, payload),
                  "a join is what was read");
  if (const auto welcome = decode_welcome(payload))
    fuzz::require(is_what_was_read([](const Welcome& one) { return encode(one); }, decode_welcome,
                                   welcome->coordinator, payload),
                  "a welcome is what was read");
  if (const auto contribution = decode_contribution(payload)) {
    fuzz::require(contribution->bytes.size() <= kMaxContribution, "contributions are bounded");
    fuzz::require(same(payload_of(encode(*contribution)), payload), "so is a contribution");
  }
  if (const auto piece = decode_gathered(payload))
    fuzz::require(piece->bytes.size() < payload.size(), "a piece lies in its frame");
  if (const auto failure = decode_failure(payload))
    fuzz::require(
        is_what_was_read([](const Failure& one) { return encode(FrameType::Report, one); },
                         decode_failure, failure->reason, payload),
        "a failure is what was read");
  if (const auto note = decode_note(payload)) {
    fuzz::require(note->bytes.size() <= kMaxNote, "notes are bounded");
    fuzz::require(same(payload_of(encode(FrameType::Noted, *note)), payload), "so is a note");
  }
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  const Bytes bytes(50, 7);
  std::vector<Bytes> seeds = {
      encode(Join{1, 4, 1000, 900, 5000, 77, "host a, pid 1"}),
      encode(Welcome{0, "host b, pid 2"}),
      encode(Contribution{3, 1000, bytes}),
      encode_without_bytes({3, 500, 500, 0, bytes}),
      encode(FrameType::Failed, {ErrorCode::RemoteError, 2, "rank 2 was lost"}),
      encode(FrameType::Note, Note{kEveryone, bytes}),
      encode(FrameType::Noted, Note{2, bytes}),
      encode_empty(FrameType::Heartbeat),
      concatenate({{1, 2, 3}, {}, {4}}),
  };
  seeds[3].insert(seeds[3].end(), bytes.begin(), bytes.end());
  return seeds;
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  const std::span<const uint8_t> input(data, size);
  if (size >= kHeaderBytes) {
    if (const auto header = decode_header(data))
      fuzz::require(header->payload_bytes <= kMaxPayload, "payloads are bounded");
    decode_payload(input.subspan(kHeaderBytes));
  }
  for (const size_t parts : {size_t{0}, size_t{1}, size_t{3}}) {
    if (const auto pieces = split(input, parts))
      fuzz::require(same(concatenate(*pieces), input), "a concatenation is what was read");
  }
  return 0;
}
