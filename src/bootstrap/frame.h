// The control plane's messages: a header of 8 bytes (payload length, type, zeros; little endian)
// and a bounded payload. Decoders check all that they read; nullopt means that the peer sent
// nonsense.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace hetccl::bootstrap {

enum class FrameType : uint8_t {
  Join = 1,      ///< rank -> coordinator, first on a connection
  Welcome,       ///< coordinator -> rank: all ranks have joined
  Heartbeat,     ///< both ways
  Contribution,  ///< rank -> coordinator: its part of an all-gather
  Gathered,      ///< coordinator -> rank: a piece of all parts
  Report,        ///< rank -> coordinator: a failure that it has seen
  Failed,        ///< coordinator -> rank: the communicator's first cause; nothing follows
  Leave,         ///< rank -> coordinator: nothing follows
  Farewell,      ///< coordinator -> rank: losing the coordinator is no failure from now on
  Departed,      ///< coordinator -> rank: ranks that have left
  Stalled,       ///< rank -> coordinator: a collective that does not complete
  Inquiry,       ///< coordinator -> rank: asks for its position
  Whereabouts,   ///< rank -> coordinator: the answer
  Note,          ///< rank -> coordinator: bytes for one rank or for all others
  Noted,         ///< coordinator -> rank: bytes that a rank sent it
  Knock,         ///< stranger -> door, first on a connection
  Heard,         ///< door -> knocker: the knock was taken
};

inline constexpr size_t kHeaderBytes = 8;
inline constexpr size_t kMaxContribution = kMaxGathered;
/// The largest payload of any frame: a full contribution with its fields.
inline constexpr size_t kMaxPayload = kMaxContribution + 64;
/// The largest payload of a rank that has not joined, or of a knock.
inline constexpr size_t kMaxJoinPayload = 2048;
inline constexpr size_t kMaxDescription = 1024;
inline constexpr size_t kMaxReason = 4096;
inline constexpr size_t kMaxCall = 256;
inline constexpr int32_t kMaxRanks = 65'536;
/// The number of heartbeats per liveness deadline.
inline constexpr int64_t kHeartbeatsPerLiveness = 5;

using Bytes = std::vector<uint8_t>;

struct Header {
  uint32_t payload_bytes = 0;
  FrameType type{};
};
void encode_header(const Header& header, uint8_t* out);
/// Takes kHeaderBytes bytes. Rejects unknown types and lengths beyond kMaxPayload.
std::optional<Header> decode_header(const uint8_t* in);

struct Join {
  int32_t rank = 0;
  int32_t n_ranks = 0;
  int64_t timeout_ms = 0;    ///< the caller's value, for error texts
  int64_t remaining_ms = 0;  ///< the rest of it
  int64_t liveness_ms = 0;   ///< of this rank, which sends kHeartbeatsPerLiveness heartbeats in it
  uint64_t service = 0;      ///< random; equal on ranks of one Service
  std::string description;
};
struct Welcome {
  int32_t coordinator_rank = -1;  ///< the rank in the coordinator's process, or -1
  std::string coordinator;        ///< that rank's description
};
/// A rank that has left, and how many calls it had made.
struct Departure {
  int32_t rank = 0;
  uint64_t called = 0;
};
/// The fields before a contribution's bytes.
struct Contribution {
  uint64_t sequence = 0;
  int64_t timeout_ms = 0;
  std::span<const uint8_t> bytes;
};
/// A piece of the compacted concatenation of all parts.
struct Gathered {
  uint64_t sequence = 0;
  uint64_t expanded = 0;  ///< bytes of the concatenation
  uint64_t total = 0;     ///< bytes of the compacted concatenation
  uint64_t offset = 0;
  std::span<const uint8_t> bytes;
};

/// The fields before a note's bytes.
struct Note {
  int32_t peer = 0;  ///< Note: the receiver, kEveryone or kAll; Noted: the sender
  std::span<const uint8_t> bytes;
};

/// Encode whole frames, with header.
Bytes encode(const Join& join);
Bytes encode(const Welcome& welcome);
Bytes encode(const Contribution& contribution);
Bytes encode(FrameType type, const Failure& failure);  ///< Report or Failed
Bytes encode(const Stall& stall);
Bytes encode(const Position& position);
Bytes encode(const std::vector<Departure>& departures);
Bytes encode(FrameType type, const Note& note);  ///< Note or Noted
Bytes encode_knock(std::span<const uint8_t> words);
Bytes encode_number(FrameType type, uint64_t number);  ///< Leave (calls) or Inquiry (sequence)
Bytes encode_empty(FrameType type);                    ///< Heartbeat, Farewell or Heard
/// Encodes header and fields only. The piece's bytes follow separately, shared by all receivers.
Bytes encode_without_bytes(const Gathered& piece);

std::optional<Join> decode_join(std::span<const uint8_t> payload);
std::optional<Welcome> decode_welcome(std::span<const uint8_t> payload);
std::optional<Contribution> decode_contribution(std::span<const uint8_t> payload);
std::optional<Gathered> decode_gathered(std::span<const uint8_t> payload);
std::optional<Failure> decode_failure(std::span<const uint8_t> payload);
std::optional<Stall> decode_stall(std::span<const uint8_t> payload);
std::optional<Position> decode_position(std::span<const uint8_t> payload);
std::optional<std::vector<Departure>> decode_departures(std::span<const uint8_t> payload);
/// Accepts at most kMaxNote bytes. The caller checks `peer`.
std::optional<Note> decode_note(std::span<const uint8_t> payload);
std::optional<uint64_t> decode_number(std::span<const uint8_t> payload);

/// Concatenates parts for Gathered pieces: by rank, a length in 4 bytes and the bytes; nothing if
/// all parts are empty. `split` is the inverse.
Bytes concatenate(const std::vector<Bytes>& parts);
std::optional<std::vector<Bytes>> split(std::span<const uint8_t> concatenation, size_t n_parts);

}  // namespace hetccl::bootstrap
