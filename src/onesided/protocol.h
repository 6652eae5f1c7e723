// Frames: the messages that two endpoints exchange on their channel, besides the bytes of blocks.
// Every decoder checks everything that it reads, and returns nothing if the peer sent nonsense.
//
// - Put: transfer, pieces, last. The pieces' bytes follow the frame, or are inside it. The last
//   frame may carry a notification.
// - Get: transfer, pieces, last, notification as for Put. The other end answers by Data or Done.
// - Data: transfer, count. The next `count` requested pieces follow, in their order.
// - Done: transfer, code, text. The put has landed, or the transfer was refused or cancelled.
// - Notify: a notification on its own.
// - Cancel: transfer. The other end answers by Done with `last`, after which none of the
//   transfer's bytes moves.
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

/// Version of the protocol; both endpoints must have the same.
inline constexpr int kProtocol = 2;

inline constexpr size_t kMaxFrame = size_t{64} << 10;
inline constexpr size_t kMaxNotification = size_t{32} << 10;
inline constexpr size_t kMaxText = 1024;  ///< of Done
/// Most bytes of pieces that travel inside their frame.
inline constexpr size_t kMaxInline = size_t{4} << 10;
inline constexpr uint32_t kMaxPieces = 1024;
/// Most bytes of a piece. Each piece of a block is a message of the channel.
inline constexpr uint64_t kMaxPiece = uint64_t{4} << 20;

/// A piece of a region that belongs to the receiver of the frame.
struct Piece {
  uint64_t region = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;  ///< 1 to kMaxPiece
  bool operator==(const Piece&) const = default;
};

struct Frame {
  enum class Kind : uint8_t { Put = 1, Get, Data, Done, Notify, Cancel } kind{};
  uint64_t transfer = 0;
  bool last = false;  ///< Put, Get, Data: the transfer's last frame; Done: answers a Cancel
  ErrorCode code{};   ///< Done
  /// Put, Data: the way in which pieces arrive. Runs, Lists: several to a message (loader.h).
  /// Inline: as `data`.
  enum class Way : uint8_t { OneByOne, Runs, Lists, Window, Inline } way{};
  uint32_t count = 0;           ///< Data
  std::vector<Piece> pieces{};  ///< Put, Get: at most kMaxPieces
  bool notifies = false;        ///< Put, Get, in the last frame: `payload` is a notification
  Bytes payload{};              ///< a notification, or Done's text
  Bytes data{};                 ///< Inline: the pieces' bytes
  bool operator==(const Frame&) const = default;
};

/// Returns at most kMaxFrame bytes.
Bytes encode(const Frame& frame);
std::optional<Frame> decode(std::span<const uint8_t> bytes);

}  // namespace hetccl::onesided
