// Frames: what two endpoints say to each other on their channel, beside the bytes of blocks. Every
// decoder checks all it reads; nothing means that the peer sent nonsense.
//
//   Put     transfer, pieces, last; the pieces' bytes follow. With the last frame a notification.
//   Get     transfer, pieces, last; the other end answers by Data or Done. The same notification.
//   Data    transfer, count: so many of the pieces that were asked for follow, in their order.
//   Done    transfer, code, text: it is over: a put has landed, or either was refused or cancelled.
//   Notify  a notification alone.
//   Cancel  transfer: answered by Done with `last`, after which no byte of it moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hetccl::onesided {

using Bytes = std::vector<uint8_t>;

/// Counts what two endpoints must speak alike.
inline constexpr int kProtocol = 1;

inline constexpr size_t kMaxFrame = size_t{64} << 10;
inline constexpr size_t kMaxNotification = size_t{32} << 10;
inline constexpr size_t kMaxText = 1024;  ///< of Done
inline constexpr uint32_t kMaxPieces = 1024;
/// A block moves in pieces of at most so many bytes, each a message of the channel.
inline constexpr uint64_t kMaxPiece = uint64_t{4} << 20;

/// Bytes of a region of the end that receives the frame.
struct Piece {
  uint64_t region = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;  ///< 1 to kMaxPiece
  bool operator==(const Piece&) const = default;
};

struct Frame {
  enum class Kind : uint8_t { Put = 1, Get, Data, Done, Notify, Cancel } kind{};
  uint64_t transfer = 0;
  bool last = false;  ///< Put, Get, Data: of the transfer; Done: it answers a Cancel
  ErrorCode code{};   ///< Done
  /// Put, Data: how the pieces come. Runs: see loader.h.
  enum class Way : uint8_t { OneByOne, Runs, Window } way{};
  uint32_t count = 0;           ///< Data
  std::vector<Piece> pieces{};  ///< Put, Get: at most kMaxPieces
  bool notifies = false;        ///< Put and Get, the last: `payload` is a notification
  Bytes payload{};              ///< a notification, or the text of Done
  bool operator==(const Frame&) const = default;
};

/// At most kMaxFrame bytes.
Bytes encode(const Frame& frame);
std::optional<Frame> decode(std::span<const uint8_t> bytes);

}  // namespace hetccl::onesided
