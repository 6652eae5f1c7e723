#include "bootstrap/frame.h"

#include <doctest/doctest.h>

#include <random>

#include "base/config.h"

namespace hetccl::bootstrap {
namespace {

std::span<const uint8_t> payload(const Bytes& frame) {
  const auto header = decode_header(frame.data());
  REQUIRE(header);
  REQUIRE(header->payload_bytes == frame.size() - kHeaderBytes);
  return std::span(frame).subspan(kHeaderBytes);
}

TEST_CASE("frames come back as they were") {
  const auto join = decode_join(payload(encode(Join{3, 8, 1000, 900, 5000, 42, "host a, pid 7"})));
  REQUIRE(join);
  CHECK(join->rank == 3);
  CHECK(join->n_ranks == 8);
  CHECK(join->remaining_ms == 900);
  CHECK(join->service == 42);
  CHECK(join->description == "host a, pid 7");
  const auto welcome = decode_welcome(payload(encode(Welcome{-1, "x"})));
  REQUIRE(welcome);
  CHECK(welcome->coordinator_rank == -1);
  const Bytes bytes = {1, 2, 3};
  const Bytes contribution_frame = encode(Contribution{9, 77, bytes});
  const auto contribution = decode_contribution(payload(contribution_frame));
  REQUIRE(contribution);
  CHECK(contribution->sequence == 9);
  CHECK(Bytes(contribution->bytes.begin(), contribution->bytes.end()) == bytes);
  const auto failure =
      decode_failure(payload(encode(FrameType::Failed, Failure{ErrorCode::Timeout, -1, "late"})));
  REQUIRE(failure);
  CHECK(failure->code == ErrorCode::Timeout);
  CHECK(failure->rank == -1);
  CHECK(failure->reason == "late");
}

TEST_CASE("what ranks say of collectives and of leaving comes back as it was") {
  const Stall stall{{ErrorCode::Timeout, 2, "it timed out"}, 1ULL << 40, "barrier #3", "detail"};
  const auto same_stall = decode_stall(payload(encode(stall)));
  REQUIRE(same_stall);
  CHECK(same_stall->failure.code == ErrorCode::Timeout);
  CHECK(same_stall->failure.rank == 2);
  CHECK(same_stall->failure.reason == "it timed out");
  CHECK(same_stall->sequence == 1ULL << 40);
  CHECK(same_stall->call == "barrier #3");
  CHECK(same_stall->detail == "detail");
  const auto position = decode_position(payload(encode(Position{7, 5, "barrier #6"})));
  REQUIRE(position);
  CHECK(position->called == 7);
  CHECK(position->completed == 5);
  CHECK(position->call == "barrier #6");
  const auto departures =
      decode_departures(payload(encode(std::vector<Departure>{{3, 4}, {5, 1ULL << 50}})));
  REQUIRE(departures);
  REQUIRE(departures->size() == 2);
  CHECK((*departures)[1].rank == 5);
  CHECK((*departures)[1].called == 1ULL << 50);
  CHECK(decode_number(payload(encode_number(FrameType::Leave, 99))) == 99);

  const Bytes frame = encode(stall);
  const auto whole = payload(frame);
  for (size_t n = 0; n < whole.size(); ++n) CHECK_FALSE(decode_stall(whole.first(n)));
  CHECK_FALSE(decode_departures(whole.first(13)));
  CHECK_FALSE(decode_number(whole.first(9)));
  CHECK_FALSE(decode_stall(payload(encode(Stall{{ErrorCode::Ok, 0, ""}, 0, "", ""}))));
  CHECK(encode(Position{0, 0, std::string(100'000, 'x')}).size() < kMaxCall + 64);
}

TEST_CASE("notes come back as they were; cut and overlong ones are refused") {
  const Bytes longest(kMaxNote, 7);
  for (const Bytes& bytes : {Bytes(), Bytes{1, 2, 3}, longest}) {
    const Bytes frame = encode(FrameType::Note, Note{kEveryone, bytes});
    CHECK(decode_header(frame.data())->type == FrameType::Note);
    const auto note = decode_note(payload(frame));
    REQUIRE(note);
    CHECK(note->peer == kEveryone);
    CHECK(Bytes(note->bytes.begin(), note->bytes.end()) == bytes);
  }
  const Bytes noted = encode(FrameType::Noted, Note{65'535, longest});
  CHECK(decode_header(noted.data())->type == FrameType::Noted);
  CHECK(decode_note(payload(noted))->peer == 65'535);
  for (size_t n = 0; n < sizeof(int32_t); ++n) CHECK_FALSE(decode_note(payload(noted).first(n)));
  const Bytes too_long(kMaxNote + 1, 7);
  const Bytes refused = encode(FrameType::Note, Note{0, too_long});
  CHECK_FALSE(decode_note(payload(refused)));
}

TEST_CASE("headers of unknown types and too long payloads are nonsense") {
  uint8_t bytes[kHeaderBytes];
  encode_header({kMaxPayload, FrameType::Join}, bytes);
  CHECK(decode_header(bytes));
  encode_header({kMaxPayload + 1, FrameType::Join}, bytes);
  CHECK_FALSE(decode_header(bytes));
  encode_header({0, static_cast<FrameType>(0)}, bytes);
  CHECK_FALSE(decode_header(bytes));
  encode_header({0, static_cast<FrameType>(18)}, bytes);
  CHECK_FALSE(decode_header(bytes));
  encode_header({0, FrameType::Leave}, bytes);
  bytes[7] = 1;
  CHECK_FALSE(decode_header(bytes));
}

TEST_CASE("cut, padded and overlong payloads are refused") {
  const Bytes frame = encode(Join{0, 2, 1, 1, 1000, 1, "description"});
  const auto whole = payload(frame);
  for (size_t n = 0; n < whole.size(); ++n) CHECK_FALSE(decode_join(whole.first(n)));
  Bytes padded(whole.begin(), whole.end());
  padded.push_back(0);
  CHECK_FALSE(decode_join(padded));
  const Bytes huge(kMaxContribution + 17, 1);
  CHECK_FALSE(decode_contribution(huge));
  Bytes lying(whole.begin(), whole.end());
  lying[40] = lying[41] = lying[42] = lying[43] = 0xff;  // the description's length
  CHECK_FALSE(decode_join(lying));
  CHECK_FALSE(decode_failure(payload(encode(FrameType::Report, Failure{ErrorCode::Ok, 0, ""}))));
  CHECK(
      encode(FrameType::Report, Failure{ErrorCode::Timeout, 0, std::string(100'000, 'x')}).size() <
      kMaxReason + 64);
}

TEST_CASE("random bytes never decode beyond their end") {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes(random() % 64);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() % 8);
    (void)decode_join(bytes);
    (void)decode_welcome(bytes);
    (void)decode_contribution(bytes);
    (void)decode_gathered(bytes);
    (void)decode_failure(bytes);
    (void)decode_stall(bytes);
    (void)decode_position(bytes);
    (void)decode_departures(bytes);
    (void)decode_note(bytes);
    (void)decode_number(bytes);
    const auto parts = split(bytes, random() % 5);
    size_t total = 0;
    if (parts) {
      for (const Bytes& part : *parts) total += part.size() + (bytes.empty() ? 0 : 4);
      CHECK(total == bytes.size());
    }
  }
}

TEST_CASE("concatenation splits into the same parts") {
  const std::vector<Bytes> parts = {{}, {1}, Bytes(1000, 2), {}};
  const Bytes all = concatenate(parts);
  CHECK(split(all, 4) == parts);
  CHECK_FALSE(split(all, 3));
  CHECK(concatenate({{}, {}, {}}).empty());
  CHECK(split({}, 3) == std::vector<Bytes>(3));
  CHECK_FALSE(split(Bytes(12), 3));  // empty parts have one form
  CHECK_FALSE(split(all, 5));
}

TEST_CASE("a rank asks for no other time of liveness than its own setting may have") {
  const auto asks = [](int64_t liveness_ms) {
    return decode_join(payload(encode(Join{0, 2, 1, 1, liveness_ms, 1, ""}))).has_value();
  };
  for (const int64_t good : {kLeastLivenessMs, int64_t{5'000}, kDayMs}) CHECK(asks(good));
  for (const int64_t bad : {int64_t{-1}, int64_t{0}, kLeastLivenessMs - 1, kDayMs + 1, INT64_MAX})
    CHECK_FALSE(asks(bad));
}

TEST_CASE("text of a peer is fit for a terminal") {
  const std::string hostile = "host \x1b]0;owned\a\nhetccl [rank 0] error: forged, Zürich";
  const std::string escaped = "host \\x1b]0;owned\\x07\\nhetccl [rank 0] error: forged, Zürich";
  const Bytes join = encode(Join{0, 2, 1, 1, 1000, 1, hostile});
  CHECK(decode_join(payload(join))->description == escaped);
  const Bytes failed = encode(FrameType::Failed, Failure{ErrorCode::RemoteError, 1, hostile});
  CHECK(decode_failure(payload(failed))->reason == escaped);
  const Bytes position = encode(Position{1, 1, std::string(kMaxCall, '\x1b')});
  CHECK(decode_position(payload(position))->call.size() <= kMaxCall);
}

}  // namespace
}  // namespace hetccl::bootstrap
